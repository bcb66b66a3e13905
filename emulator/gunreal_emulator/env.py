"""A replacement for `ale_py.env`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import Error

from gunreal_emulator.ale import OwnALE
from gunreal_emulator.games import ACTIONS
from gunreal_emulator.native import check_whole

_OBSERVATIONS = {"rgb": "getScreenRGB", "grayscale": "getScreenGrayscale", "ram": "getRAM"}


class AtariEnv(gymnasium.Env, gymnasium.utils.EzPickle):
    """A replacement for `ale_py.env.AtariEnv`: a game as a Gymnasium environment, registered as gunreal/Pong-v5, ....

    Observations are the screen after a step, uint8 `[height, 160, 3]` ("rgb") or `[height, 160]` ("grayscale"), or the
    memory, uint8 `[128]` ("ram"). The height is 210, or 250 in a few games. Rewards are not clipped. `info` contains
    `lives`, `episode_frame_number`, and `frame_number` since the console was switched on. A reset with a seed switches
    a new console on, and adds `seeds`.

    Without sticky actions, the episodes are those of ale-py. Sticky actions are drawn from other random numbers.

    Args:
      game: name of the ROM, such as "ms_pacman".
      mode: number of the game's mode in ale-py. None plays the first mode.
      difficulty: difficulty switches. Bit 0 sets the left switch to A, and bit 1 the right one.
      obs_type: "rgb", "grayscale" or "ram".
      frameskip: number of frames per step, or (least, most + 1) of a number that is drawn in each step.
      repeat_action_probability: probability that a frame repeats the last action.
      full_action_space: whether to use all actions, 18 in most games, instead of those that have an effect in the game.
      max_num_frames_per_episode: number of frames after which an episode is truncated. None disables truncation.
      render_mode: None or "rgb_array".

    Raises:
      gymnasium.error.Error: an argument is invalid.
      UnknownGame: the game, its mode or its difficulty does not exist or is not supported. The message is one line.
      EmulatorUnavailable: the emulator can't be compiled. The message is one line that names the fix.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(
        self,
        game: str,
        mode: int | None = None,
        difficulty: int | None = None,
        obs_type: str = "rgb",
        frameskip: tuple[int, int] | int = 4,
        repeat_action_probability: float = 0.25,
        full_action_space: bool = False,
        max_num_frames_per_episode: int | None = None,
        render_mode: str | None = None,
    ):
        options = {name: value for name, value in dict(locals()).items() if name not in ("self", "__class__")}
        gymnasium.utils.EzPickle.__init__(self, **options)
        if obs_type not in _OBSERVATIONS:
            raise Error(f"obs_type is {obs_type!r}, but must be rgb, grayscale or ram")
        if render_mode not in (None, "rgb_array"):
            raise Error(f"render_mode is {render_mode!r}, but must be None or 'rgb_array'")
        if not 0 <= repeat_action_probability <= 1:
            raise Error(f"repeat_action_probability is {repeat_action_probability}, but must be from 0 to 1")
        _check_frameskip(frameskip)
        check_whole("max_num_frames_per_episode", max_num_frames_per_episode or 0, 0, 2**31 - 1)
        self._load = lambda: OwnALE(game, mode, difficulty or 0, max_num_frames_per_episode or 0)
        self._frameskip, self._sticky, self.render_mode = frameskip, repeat_action_probability, render_mode
        self._seed(None)
        self._actions = self.ale.getLegalActionSet() if full_action_space else self.ale.getMinimalActionSet()
        self._observe = _OBSERVATIONS[obs_type]
        shape = getattr(self.ale, self._observe)().shape
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(self._actions))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode. With a seed, the episode is a function of it and of the actions."""
        super().reset(seed=seed, options=options)
        seeds = None if seed is None else self._seed(seed)
        self._earlier_frames += self.ale.getEpisodeFrameNumber()
        self.ale.reset_game()
        self._held = self._actions[0]
        return self._look(), self._info() | ({} if seeds is None else {"seeds": seeds})

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Holds an action for `frameskip` frames, or until the episode ends, and sums their rewards."""
        skip = self._frameskip
        reward, chosen = 0, self._actions[action]
        for _ in range(skip if isinstance(skip, int) else self.np_random.integers(*skip)):
            if not self._sticky or self._repeats.random() >= self._sticky:
                self._held = chosen
            reward += self.ale.act(self._held)
        terminated = self.ale.game_over(with_truncation=False)
        return self._look(), float(reward), terminated, self.ale.game_truncated(), self._info()

    def render(self) -> np.ndarray | None:
        """Returns the screen, uint8 `[height, 160, 3]`, or None without a render mode."""
        return self.ale.getScreenRGB() if self.render_mode else None

    def get_action_meanings(self) -> list[str]:
        """Returns the name of each action."""
        return [ACTIONS[action] for action in self._actions]

    def _seed(self, seed: int | None) -> tuple[int, int]:
        """Switches a new console on. Returns the seeds of the frame skip and of sticky actions."""
        skips, repeats = (int(word) for word in np.random.SeedSequence(seed).generate_state(2))
        self._np_random = np.random.default_rng(skips)
        self._repeats = np.random.default_rng(repeats)
        self.ale, self._earlier_frames = self._load(), 0
        return skips, repeats

    def _look(self) -> np.ndarray:
        return getattr(self.ale, self._observe)()

    def _info(self) -> dict[str, Any]:
        frames = self.ale.getEpisodeFrameNumber()
        lives = self.ale.lives()
        return {"lives": lives, "episode_frame_number": frames, "frame_number": self._earlier_frames + frames}


def _check_frameskip(frameskip: Any) -> None:
    if type(frameskip) is int and frameskip > 0:
        return
    fits = type(frameskip) is tuple and len(frameskip) == 2 and all(type(bound) is int for bound in frameskip)
    if not (fits and 0 < frameskip[0] < frameskip[1]):
        raise Error(f"frameskip is {frameskip!r}, but must be a positive whole number or two ascending ones")
