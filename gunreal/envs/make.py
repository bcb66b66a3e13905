"""The one road to an environment: `make` opens copies that step together, `describe` says what they look like."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from gunreal.config.schema import Config
from gunreal.envs.step import Step, VectorEnv
from gunreal.experience.spec import Spec


def make(config: Config, num_envs: int, extra_keys: Sequence[str] = ()) -> VectorEnv:
    """Opens `num_envs` copies of `config.env`; nothing is reset yet.

    Raises:
      ConfigError: one line that names the fix, for whatever this library can't learn from.
    """
    if config.env.startswith("ALE/"):
        from gunreal.envs.atari import AtariEnv

        return AtariEnv(config, num_envs, extra_keys)
    from gunreal.envs.generic import GenericEnv

    return GenericEnv(config, num_envs, extra_keys)


def describe(config: Config) -> Spec:
    """The interface of `config.env`, found by opening it once. Raises ConfigError as `make` does."""
    env = make(config, 1)
    env.close()
    stack = config.frame_stack if len(env.frame) == 3 else 1
    state = 2 * config.hidden if config.network == "lstm" else 0
    clip = config.reward_clip
    if clip < 0:
        clip = 1.0 if config.env.startswith("ALE/") else 0.0
    return Spec(env.frame, stack, env.dtype, env.num_actions, config.t_max, config.discount, clip, state)


def check_recorded(config: Config, keys: Sequence[str]) -> None:
    """Raises ConfigError where the environment does not give what the tasks record; it is reset once to see."""
    if keys:
        with contextlib.closing(make(config, 1, keys)) as env:
            env.send(np.zeros(1, np.int32), np.ones(1, bool), np.array([config.seed]))
            env.recv()


def restore(envs: VectorEnv, seeds: Sequence[int], actions: Sequence[np.ndarray]) -> Step:
    """Brings each environment to where it was after `actions[i]` (int `[length]`) of the episode that `seeds[i]` began.

    Episodes differ in length but environments step together, so each one's reset is placed such that all arrive at the
    same time; until then it idles. Returns the last step.
    """
    steps = max(len(episode) for episode in actions)
    starts = np.array([steps - len(episode) for episode in actions])
    padded = np.zeros((steps + 1, envs.num_envs), np.int32)
    for i, episode in enumerate(actions):
        padded[starts[i] + 1 :, i] = episode
    done = np.ones(envs.num_envs, bool)
    for t in range(steps + 1):
        envs.send(padded[t], (starts == t) | (done & (t < starts)), np.asarray(seeds, np.int64))
        last = envs.recv()
        done = last.terminated | last.truncated
    return last
