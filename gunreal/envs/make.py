"""Creation of environments: `make` opens copies that step together, and `describe` returns their interface."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import gymnasium
import numpy as np

from gunreal.config.plugins import place
from gunreal.config.resolve import Facts, resolved
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.raw import Raw
from gunreal.envs.step import Step, VectorEnv
from gunreal.experience.spec import RecordedField, Spec

if TYPE_CHECKING:
    from gunreal.envs.generic import GenericEnv

_OWN = ("ALE/", "gunreal/")


def make(config: Config, num_envs: int, extra_keys: Sequence[str] = ()) -> VectorEnv:
    """Opens `num_envs` copies of `config.env`. They are not reset yet.

    Args:
      config: configuration of the run.
      num_envs: number of copies.
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


def describe(config: Config) -> Spec:
    """Opens `config.env` once and returns its interface. Raises ConfigError as `make` does.

    The state of a recurrent network is not part of it; `gunreal.learning.registry.interface` adds it.
    """
    return examine(config)[0]


def examine(config: Config) -> tuple[Spec, Raw, Config]:
    """Opens `config.env` once.

    Returns:
      Its interface, what it itself observes, and the configuration, resolved with both.

    Raises:
      ConfigError: as `make`, or an environment that is not the library's own cannot be opened.
    """
    try:
        env = make(config, 1)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # an environment can raise anything
        if config.env.startswith(_OWN):
            raise
        raise ConfigError(f"{config.env} cannot be opened: {place(error)}") from error
    env.close()
    stack = config.frame_stack if len(env.frame) == 3 else 1
    facts = Facts(is_image=len(env.frame) == 3, image_key=env.raw.key, emulator=getattr(env, "emulator", None))
    config = resolved(config, facts)
    spec = Spec(env.frame, stack, env.dtype, env.num_actions, config.t_max, config.discount, config.reward_clip)
    return spec, env.raw, config


def check_recorded(config: Config, fields: Collection[RecordedField]) -> None:
    """Resets the environment once.

    Raises:
      ConfigError: the environment lacks one of the recorded fields, or its values do not fit the field.
    """
    if not fields:
        return
    with contextlib.closing(make(config, 1, sorted({field.key for field in fields}))) as env:
        extra = env.step(np.zeros(1, np.int32), np.ones(1, bool), np.array([config.seed])).extra
    for field in fields:
        value = np.asarray(extra[field.key] if field.convert is None else field.convert(extra[field.key]))
        stored = np.dtype(field.dtype)
        lossy = value.dtype.kind == "f" and stored.kind != "f"  # 0.5 would become 0
        lossy |= stored.kind in "iu" and not np.array_equal(value.astype(stored), value)  # 300 would become 44
        if lossy or value.shape[1:] != field.shape:
            number = value.size and value.dtype.kind in "biuf"
            span = f" with values from {value.min()} to {value.max()}" if number else ""
            raise ConfigError(
                f"a task records {field.key!r} as {field.dtype} of shape {field.shape}, but {config.env} has "
                f"{value.dtype} of shape {value.shape[1:]}{span}; convert it in the environment, or leave out the task"
            )


def try_reset(config: Config) -> None:
    """Raises ConfigError if an environment that is not the library's own fails at a reset or in its first step."""
    if config.env.startswith("dmlab/"):
        from gunreal.envs import dmlab_module

        dmlab_module.try_reset(config)
    elif not config.env.startswith(_OWN):
        from gunreal.envs.generic import GenericEnv

        with contextlib.closing(GenericEnv(config, 1)) as env:
            try:
                _try_steps(config, env)
            except ConfigError:
                raise
            except (Exception, SystemExit) as error:  # an environment can raise anything
                if "values to unpack" in str(error):
                    _check_values(env, config.seed)
                raise ConfigError(f"{config.env} fails in its first step: {place(error)}") from error


def _check_values(env: GenericEnv, seed: int) -> None:
    """Raises ConfigError if the environment returns another number of values than Gymnasium's."""
    try:
        env.check_unwrapped(seed)
    except ConfigError:
        raise
    except Exception:  # the values are unpacked inside the environment
        return


def _try_steps(config: Config, env: VectorEnv) -> None:
    for reset in (True, False):
        env.step(np.zeros(1, np.int32), np.array([reset]), np.array([config.seed]))


def why_fallback(config: Config) -> str:
    """Returns in one line why the environment uses something else than it prefers. Empty if it does not."""
    if config.env.startswith("ALE/"):
        from gunreal.envs import atari

        return atari.why_ale(config)
    return ""


def restore(envs: VectorEnv, seeds: Sequence[int], actions: Sequence[np.ndarray]) -> Step:
    """Restores the states of environments by replaying episodes.

    Environments step together, but the episodes differ in length. Each reset is therefore delayed so that all
    environments finish at the same time.

    Args:
      envs: the environments.
      seeds: seed of each environment's episode.
      actions: the actions taken so far in each episode, int `[length]` each.

    Returns:
      The last step.
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
