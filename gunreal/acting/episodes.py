"""Plays episodes with a trained policy in several environments at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gunreal.acting.policy import Memory, decide
from gunreal.config.derived import per_process
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.apart import opener
from gunreal.envs.make import is_foreign
from gunreal.envs.step import VectorEnv
from gunreal.experience.replay import Past
from gunreal.experience.spec import Spec
from gunreal.learning.learner import Learner

MAX_STEPS = 27_000  # 108 000 frames, half an hour of Atari, which is ALE's own limit
_ENVIRONMENTS = 16
Watch = Callable[[np.ndarray, float, Past | None], None]


class Transition(NamedTuple):
    """A step of an episode.

    Attributes:
      number: number of the episode.
      action: the action that led to the frame, -1 for the first frame of an episode.
      frame: the frame, `[*spec.frame]`.
      reward: the raw reward of the action.
      terminated: whether the action terminated the episode.
      truncated: whether it truncated the episode.
      vector: the numbers beside the frame, float32 `[spec.vectors]`, or None.
    """

    number: int
    action: int
    frame: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    vector: Any = None


class Episode(NamedTuple):
    """One finished episode.

    Attributes:
      number: number of the episode, starting from 0.
      seed: seed of the environment's reset.
      score: sum of the raw rewards.
      length: length in agent steps.
      cut: whether the episode was cut at `max_steps`.
    """

    number: int
    seed: int
    score: float
    length: int
    cut: bool


def play(
    learner: Learner,
    config: Config,
    spec: Spec,
    episodes: int,
    *,
    seed: int = 1,
    sample: bool = True,
    max_steps: int = MAX_STEPS,
    watch: Watch | None = None,
    keep: Callable[[Transition], object] | None = None,
    on_step: Callable[[], object] | None = None,
) -> Iterator[Episode]:
    """Plays episodes in several environments at the same time and yields them as they end.

    Episodes are assigned to environments in advance, because taking the first ones to end would favor short episodes.
    The random numbers of an episode depend only on `seed` and the number of the episode. Training never uses them.

    Args:
      learner: learner with the policy, `predict("base", observations)`.
      episodes: number of episodes, at least 1.
      sample: whether to sample actions from the policy instead of taking the most probable one.
      max_steps: maximum length of an episode, in agent steps.
      watch: function called with each observation `[*spec.observation]` of episode 0, the score so far, and the past
        (None if the network needs none).
      keep: function called with each step of all episodes.
      on_step: function called after each step of an environment.

    Returns:
      The episodes, in the order in which they end.

    Raises:
      ValueError: there are no episodes to play.
      AgentFailure: the environment fails. Raised by the iterator, as is ConfigError if it cannot be opened.
    """
    if episodes < 1:
        raise ValueError(f"cannot play {episodes} episodes; play at least 1")

    def played() -> Iterator[Episode]:
        # Some environments allow only one per process. An episode depends on its number only, so scores stay the same.
        is_alone = is_foreign(config) and per_process(config) == 1
        count = 1 if is_alone else min(episodes, _ENVIRONMENTS)
        with contextlib.ExitStack() as stack:
            open_envs = stack.enter_context(opener(config))
            players = []
            for first in range(count):
                env = stack.enter_context(contextlib.closing(open_envs(1)))
                check_interface(config, env, spec)
                numbers = iter(range(first, episodes, count))
                players.append(_Player(env, spec, numbers, seed, watch if first == 0 else None, keep))
            for player in players:
                player.begin()
            while players:
                actions = decide(learner, [player.memory for player in players], sample)
                for player, action in zip(players, actions, strict=True):
                    if episode := player.step(action, max_steps):
                        yield episode
                        player.begin()
                    if on_step:
                        on_step()
                players = [player for player in players if player.playing]

    return played()


def summarize(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Score statistics that JSON can hold. "std" is the population standard deviation, 0 for a single episode."""
    episodes = sorted(episodes)
    scores = np.array([episode.score for episode in episodes])
    lengths = [episode.length for episode in episodes]
    return {
        "episodes": len(episodes),
        "mean": float(scores.mean()),
        "median": float(np.median(scores)),
        "std": float(scores.std()),
        "min": float(scores.min()),
        "max": float(scores.max()),
        "mean_length": float(np.mean(lengths)),
        "cut": sum(episode.cut for episode in episodes),
        "scores": scores.tolist(),
        "lengths": lengths,
    }


def check_interface(config: Config, env: VectorEnv, spec: Spec) -> None:
    """Raises ConfigError if an environment has other frames or actions than in training."""
    given = {name: getattr(env, name) for name in ("frame", "dtype", "num_actions")} | {"vectors": env.raw.numbers}
    for name, found in given.items():
        if found != (trained := getattr(spec, name)):
            message = f"{config.env} has {name} {found} instead of {trained} as in training"
            raise ConfigError(f"{message}; install the version of the environment that the run was trained in")


class _Player:
    """One environment and the episodes that it plays one after the other."""

    def __init__(
        self,
        env: VectorEnv,
        spec: Spec,
        numbers: Iterator[int],
        seed: int,
        watch: Watch | None,
        keep: Callable[[Transition], object] | None,
    ):
        self._env, self._numbers, self._seed, self._watch, self._keep = env, numbers, seed, watch, keep
        self.memory, self.playing = Memory(spec), True

    def begin(self) -> None:
        """Starts the next episode, or sets `playing` to False if there is none."""
        number = next(self._numbers, None)
        if number is None:
            self.playing = False
            return
        self._number, self._length, self._score = number, 0, 0.0
        self._episode_seed = self.memory.begin(self._seed, number)
        self._advance(0, reset=True)

    def step(self, action: int, max_steps: int) -> Episode | None:
        """Takes one step. Returns the episode if it ended."""
        done = self._advance(action, reset=False)
        self._length += 1
        cut = not done and self._length >= max_steps
        return Episode(self._number, self._episode_seed, self._score, self._length, cut) if done or cut else None

    def _advance(self, action: int, reset: bool) -> bool:
        step = self._env.step(np.array([action], np.int32), np.array([reset]), np.array([self._episode_seed], np.int64))
        reward = float(step.reward[0])
        vector = step.vector[0] if self._env.raw.vectors else None
        self.memory.see(step.frame[0], reward, vector)
        self._score += reward
        if self._watch and self._number == 0:
            self._watch(self.memory.observation, self._score, self.memory.past)
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        if self._keep:
            told = -1 if reset else int(action)
            self._keep(Transition(self._number, told, step.frame[0].copy(), reward, terminated, truncated, vector))
        return terminated or truncated
