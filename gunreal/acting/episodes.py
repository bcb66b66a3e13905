"""Plays episodes with a trained policy in several environments at the same time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from gunreal.acting.predictor import sample_actions
from gunreal.config.schema import Config
from gunreal.envs.make import make
from gunreal.experience.replay import Past, blank_past, concatenate_pasts
from gunreal.experience.returns import clip_rewards
from gunreal.experience.spec import Spec
from gunreal.learning.learner import Learner

MAX_STEPS = 27_000  # 108 000 frames, half an hour of Atari, which is ALE's own limit
_ENVIRONMENTS = 16
_STREAM = 1  # fourth word of an episode's seed; training uses three words, which equals a fourth word of 0
Watch = Callable[[np.ndarray, float, Past | None], None]


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
) -> Iterator[Episode]:
    """Plays episodes in several environments at the same time and yields them as they end.

    Episodes are assigned to environments in advance, because taking the first ones to end would favor short episodes.
    The random numbers of an episode depend only on `seed` and the number of the episode. Training never uses them.

    Args:
      learner: learner with the policy, `predict("base", observations)`.
      config: configuration of the environment.
      spec: interface of the environment.
      episodes: number of episodes, at least 1.
      seed: random seed of the episodes.
      sample: whether to sample actions from the policy instead of taking the most probable one.
      max_steps: maximum length of an episode, in agent steps.
      watch: function called with each observation `[*spec.observation]` of episode 0, the score so far, and the past
        of a recurrent network (otherwise None).

    Yields:
      The episodes, in the order in which they end.
    """
    count = min(episodes, _ENVIRONMENTS)
    with contextlib.ExitStack() as stack:
        players = []
        for first in range(count):
            player = _Player(config, spec, iter(range(first, episodes, count)), seed, watch if first == 0 else None)
            stack.callback(player.close)
            players.append(player)
        for player in players:
            player.begin()
        while players:
            observations = np.stack([player.observation for player in players])
            past = concatenate_pasts([player.past for player in players])
            logits, _, *states = learner.predict("base", observations, past)
            for i, player in enumerate(players):
                if episode := player.step(logits[i], [state[i] for state in states], sample, max_steps):
                    yield episode
                    player.begin()
            players = [player for player in players if player.playing]


class _Player:
    """One environment and the episodes that it plays one after the other."""

    def __init__(self, config: Config, spec: Spec, numbers: Iterator[int], seed: int, watch: Watch | None):
        self._env, self._spec, self._numbers, self._seed, self._watch = make(config, 1), spec, numbers, seed, watch
        self.playing = True

    def begin(self) -> None:
        """Starts the next episode, or sets `playing` to False if there is none."""
        number = next(self._numbers, None)
        if number is None:
            self.playing = False
            return
        self._number, self._length, self._score = number, 0, 0.0
        self._rng = np.random.default_rng([self._seed, number, 0, _STREAM])
        self._episode_seed = int(self._rng.integers(2**31))
        self._advance(0, reset=True)

    def step(self, logits: np.ndarray, state: list[np.ndarray], sample: bool, max_steps: int) -> Episode | None:
        """Takes one step with `logits` `[A]` and a recurrent network's new `state`. Returns the episode if it ended."""
        action = sample_actions(logits[None], self._rng)[0][0] if sample else logits.argmax()
        if self.past:
            self.past.state[0] = state[0]
        done = self._advance(int(action), reset=False)
        self._length += 1
        cut = not done and self._length >= max_steps
        return Episode(self._number, self._episode_seed, self._score, self._length, cut) if done or cut else None

    def _advance(self, action: int, reset: bool) -> bool:
        step = self._env.step(np.array([action], np.int32), np.array([reset]), np.array([self._episode_seed], np.int64))
        (frame,) = step.frame
        if reset:
            self.observation = np.concatenate([frame] * self._spec.stack)
            self.past = blank_past(self._spec, 1)
        else:
            self.observation = np.concatenate((self.observation[len(frame) :], frame))
            if self.past:
                self.past.last_action[:] = action
                self.past.last_reward[:] = clip_rewards(step.reward, self._spec.reward_clip)
        self._score += float(step.reward[0])
        if self._watch and self._number == 0:
            self._watch(self.observation, self._score, self.past)
        return bool(step.terminated[0] or step.truncated[0])

    def close(self) -> None:
        self._env.close()
