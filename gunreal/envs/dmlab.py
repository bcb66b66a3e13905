"""DeepMind Lab (Beattie et al. 2016) as a Gymnasium environment, such as `--env dmlab/nav_maze_static_01`.

Episodes are not always exactly reproducible. Only a new instance of Lab repeats an episode of the same seed and actions
to the last pixel. In an instance that has already played, the start differs by fractions of a degree and of a unit of
height, and the episode drifts from there. A serial run therefore repeats from its start, where its instances are
new. After a resume it continues from nearly the same positions, not from the same ones.

With `env_args.exact` each episode gets its own instance, and everything repeats. This is meant for debugging, because
it costs seconds and 3 MB per episode.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from gunreal.config.schema import Config, ConfigError, close_match
from gunreal.config.warning import quiet_stderr
from gunreal.envs.dmlab_levels import ACTION_SETS, LevelCache, Options, action_rows, make_options, open_lab
from gunreal.envs.dmlab_module import check_open_files

_CLOCK = "FRAMES_REMAINING_AT_60"  # frames left in the episode, at 60 frames per second whatever `fps` is


class DMLab(gymnasium.Env):
    """A DeepMind Lab level. The environment uses a single instance of Lab.

    Observation: uint8 `[height, width, 3]`, RGB. With `depth` or further `observations` it is a Dict with this entry as
    "image". The entry "depth", uint8 `[height, width]`, is the renderer's depth buffer (0 near, 255 far, not linear).
    The other entries have Lab's names and are float64 or uint8.

    An episode is `truncated` when its clock runs out. Lab then gives no frame, so the last frame is repeated. An
    episode that ends earlier, because the level was solved or lost, is `terminated`. A level without a clock is always
    truncated. A step after the end returns the end again, because a replay that drifts (see above) may end before the
    original.

    Args:
      level: name of the level, a path below Lab's `game_scripts/levels` without `.lua`.

    Raises:
      ConfigError: `deepmind_lab` is not installed, or the level or an option is invalid. The message is one line that
        names the fix.
    """

    def __init__(self, level: str, options: Options | None = None):
        self.level, self.options = level, options or Options()
        self._cache = LevelCache(self.options.level_cache)
        self._image = "RGBD_INTERLEAVED" if self.options.depth else "RGB_INTERLEAVED"
        self._lab: Any = None
        self._names = list(dict.fromkeys((self._image, *self.options.observations, _CLOCK)))
        # Removed at the latest with this object, or when Python ends.
        self._folder = tempfile.TemporaryDirectory(prefix="dmlab-", ignore_cleanup_errors=True)
        self._is_new = True
        try:
            self._lab = self._open()
            self._actions = action_rows(self.options.actions, self._lab.action_spec())
            self.observation_space = self._space()
        except BaseException:
            self.close()
            raise
        self.action_space = spaces.Discrete(len(self._actions))
        fps = max(float(self.options.settings.get("fps", 60)), 1)
        self._ticks = 60 * self.options.action_repeat / fps  # clock ticks per agent step
        self._remaining = 0.0
        self._observation: Any = None
        self._end = (False, False)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode. `seed` and the actions determine it nearly; see the module's docstring."""
        super().reset(seed=seed)
        number = int(self.np_random.integers(2**31) if seed is None else seed) % 2**31  # Lab takes a C int
        if self.options.level_seeds:
            number %= self.options.level_seeds
        if self.options.exact and not self._is_new:
            check_open_files(self.level)
            self._lab.close()
            self._lab = self._open()
        self._is_new, self._end = False, (False, False)
        self._lab.reset(episode=0, seed=number)  # a few levels mix the number of the episode into the seed
        self._observation = self._observe()
        return self._observation, {}

    def get_action_meanings(self) -> list[str]:
        """The names of the actions."""
        actions = self.options.actions
        return list(ACTION_SETS[actions] if isinstance(actions, str) else actions)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Holds an action for `action_repeat` frames and sums their rewards."""
        if any(self._end):
            return self._observation, 0.0, *self._end, {}
        reward = float(self._lab.step(self._actions[action], num_steps=self.options.action_repeat))
        if self._lab.is_running():
            self._observation = self._observe()
        else:
            had_time = self._remaining > self._ticks + 1  # a frame may take slightly more than its share of the clock
            self._end = (had_time, not had_time)
        return self._observation, reward, *self._end, {}

    def close(self) -> None:
        """Closes Lab and removes its temporary files."""
        if self._lab is not None:
            self._lab.close()
        self._folder.cleanup()

    def _open(self) -> Any:
        try:
            return open_lab(self.level, self.options, self._names, self._cache, self._folder.name)
        except ConfigError:
            raise
        except ValueError:  # the level lacks one of the observations
            self._drop_clock()
            return open_lab(self.level, self.options, self._names, self._cache, self._folder.name)

    def _drop_clock(self) -> None:
        lab = open_lab(self.level, self.options, [], self._cache, self._folder.name)  # lists what can be observed
        known = list(_observed(lab))
        lab.close()
        for name in self.options.observations:
            if name not in known:
                hint = close_match(name, known) or f"; available: {', '.join(known)}"
                raise ConfigError(f"dmlab/{self.level} has no observation {name}{hint}")
        self._names.remove(_CLOCK)

    def _space(self) -> spaces.Space:
        boxes = {}
        specs = _observed(self._lab)
        height, width = specs[self._image]["shape"][:2]
        rgb = spaces.Box(0, 255, (height, width, 3), np.uint8)
        if self.options.depth:
            boxes["depth"] = spaces.Box(0, 255, (height, width), np.uint8)
        for name in self.options.observations:
            shape, dtype = specs[name]["shape"], specs[name]["dtype"]
            if dtype is str or not shape or 0 in shape:
                raise ConfigError(f"{name} of dmlab/{self.level} is text or has no fixed shape; leave it out")
            low, high = (0, 255) if dtype is np.uint8 else (-np.inf, np.inf)
            boxes[name] = spaces.Box(low, high, shape, dtype)
        return spaces.Dict({"image": rgb, **boxes}) if boxes else rgb

    def _observe(self) -> Any:
        found = self._lab.observations()
        if _CLOCK in found:
            self._remaining = float(found[_CLOCK][0])
        image = found[self._image]
        if not isinstance(self.observation_space, spaces.Dict):
            return image
        observation = {name: found[name] for name in self.options.observations}
        if self.options.depth:
            observation["depth"] = np.ascontiguousarray(image[..., 3])
        return {"image": np.ascontiguousarray(image[..., :3]), **observation}


def _observed(lab: Any) -> dict[str, Mapping[str, Any]]:
    """What can be observed, by name. Lab itself prints that two of these are deprecated, which nobody asked for."""
    with quiet_stderr():
        return {spec["name"]: spec for spec in lab.observation_spec()}


def open_level(config: Config) -> DMLab:
    """Opens `config.env`, which is "dmlab/" and the name of a level. Raises ConfigError as `DMLab` does."""
    return DMLab(config.env.removeprefix("dmlab/"), make_options(config.env, config.env_args, config.frame_size))
