"""Creation of environments: `make` opens copies that step together, and `look` examines one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

import gymnasium
import numpy as np

from gunreal.config.derived import per_process
from gunreal.config.plugins import place
from gunreal.config.resolve import Facts, resolved
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.raw import Raw
from gunreal.envs.step import Step, VectorEnv
from gunreal.experience.spec import Spec

_MOST_BYTES = 2**28  # of one observation, of which a batch holds hundreds
_OWN = ("ALE/", "gunreal/")


def make(config: Config, num_envs: int, extra_keys: Sequence[str] = ()) -> VectorEnv:
    """Opens `num_envs` copies of `config.env`. They are not reset yet.

    Args:
      extra_keys: keys of the observation or of `info` to return in `Step.extra`.

    Raises:
      ConfigError: the environment does not exist or is not supported. The message is one line that names the fix.
    """
    if config.env.startswith("ALE/"):
        from gunreal.envs.atari import AtariEnv

        return AtariEnv(config, num_envs, extra_keys)
    from gunreal.envs.generic import GenericEnv

    return GenericEnv(config, num_envs, extra_keys)


def make_raw(config: Config) -> gymnasium.Env:
    """Opens `config.env` as a Gymnasium environment with its raw observations. Raises ConfigError as `make` does.

    Its episodes are those of `make`. Only the observations differ, which are not yet frames.
    """
    if config.env.startswith("ALE/"):
        from gunreal.envs.atari import AtariGame

        return AtariGame(config)
    from gunreal.envs.generic import open_env

    return open_env(config)


def is_foreign(config: Config) -> bool:
    """Whether the environment is not one of the library's own, so that it may do anything to its process."""
    return not config.env.startswith((*_OWN, "dmlab/"))


def describe(config: Config) -> Spec:
    """The interface that `look` returns."""
    return look(config)[0]


def look(config: Config) -> tuple[Spec, Raw, Config]:
    """Opens `config.env` in this process.

    A foreign environment is opened twice where agents share a process, reset, and takes one step. The state of a
    recurrent network is not part of the interface; `gunreal.learning.registry.interface` adds it.

    Returns:
      Its interface, what it itself observes, and the configuration, resolved with both.

    Raises:
      ConfigError: as `make`, or a foreign environment fails.
    """
    with erring(config, "cannot be opened"):
        env = make(config, 1)
    with contextlib.closing(env):
        numbers = env.raw.numbers
        if (size := math.prod(env.frame) * np.dtype(env.dtype).itemsize + 4 * numbers) > _MOST_BYTES:
            raise ConfigError(f"an observation of {config.env} takes {size / 2**20:,.0f} MiB; give it fewer numbers")
        if is_foreign(config):
            if (config.agents if config.runner == "serial" else per_process(config)) > 1:
                _open_another(config)
            _try_steps(config, env)
        stack = config.frame_stack if len(env.frame) == 3 else 1
        facts = Facts(is_image=len(env.frame) == 3, image_key=env.raw.key, emulator=getattr(env, "emulator", None))
        config = resolved(config, facts._replace(vector_keys=",".join(env.raw.vectors) or None))
        spec = Spec(env.frame, stack, env.dtype, env.num_actions, config.t_max, config.discount, config.reward_clip)
        return spec._replace(vectors=numbers), env.raw, config


@contextlib.contextmanager
def erring(config: Config, what: str) -> Iterator[None]:
    """Makes any error of an environment that is not the library's own a ConfigError of one line."""
    try:
        yield
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # an environment can raise anything
        if config.env.startswith(_OWN):
            raise
        raise ConfigError(f"{config.env} {what}: {place(error)}") from error


def _open_another(config: Config) -> None:
    try:
        make(config, 1).close()
    except (Exception, SystemExit) as error:
        fix = "use --runner parallel and" if config.runner == "serial" else "use"
        raise ConfigError(
            f"{config.env} cannot be opened twice in one process; {fix} --agents_per_process 1 ({place(error)})"
        ) from error


def _try_steps(config: Config, env: VectorEnv) -> None:
    from gunreal.envs.generic import GenericEnv

    with erring(config, "fails in its first step"):
        try:
            for reset in (True, False):
                env.step(np.zeros(1, np.int32), np.array([reset]), np.array([config.seed]))
        except (TypeError, ValueError) as error:
            if "values to unpack" in str(error) and isinstance(env, GenericEnv):
                env.check_unwrapped(config.seed)
            raise


def restore(envs: VectorEnv, seeds: Sequence[int], actions: Sequence[np.ndarray]) -> Step:
    """Restores the states of environments by replaying episodes. Returns the last step.

    Environments step together, but the episodes differ in length. Each reset is therefore delayed so that all
    environments finish at the same time.

    Args:
      seeds: seed of each environment's episode.
      actions: the actions taken so far in each episode, int `[length]` each.
    """
    steps = max(len(episode) for episode in actions)
    starts = np.array([steps - len(episode) for episode in actions])
    padded = np.zeros((steps + 1, envs.num_envs), np.int32)
    for i, episode in enumerate(actions):
        padded[starts[i] + 1 :, i] = episode
    done = np.ones(envs.num_envs, bool)
    for t in range(steps + 1):
        last = envs.step(padded[t], (starts == t) | (done & (t < starts)), np.asarray(seeds, np.int64))
        done = last.terminated | last.truncated
    return last
