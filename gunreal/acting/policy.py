"""A trained policy for your own loop, and its memory of each environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from gunreal.acting.predictor import sample_actions
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.raw import Converter, Raw, converter, is_image
from gunreal.experience import seeds
from gunreal.experience.replay import Past, blank_past, concatenate_pasts
from gunreal.experience.returns import clip_rewards
from gunreal.experience.spec import Spec
from gunreal.learning.learner import Learner


class Memory:
    """The memory of a policy for the current episode of one environment.

    Attributes:
      observation: the newest frames, `[*spec.observation]`, once `see` has been called.
      past: the past, or None if the network needs none.
      logits: the logits of the last action's policy, `[num_actions]`, once `decide` has been called.
      value: the value that was predicted with them.
      is_new: whether no frame of the episode has been seen yet.
    """

    observation: np.ndarray
    past: Past | None
    logits: np.ndarray
    value: float

    def __init__(self, spec: Spec):
        self._spec = spec

    def begin(self, seed: int, number: int) -> int:
        """Begins an episode. All of its random numbers depend on `seed` and `number` only.

        Returns:
          The seed for the environment's reset.
        """
        self.rng, self.is_new = np.random.default_rng([seed, number, 0, seeds.EVALUATION]), True
        return int(self.rng.integers(2**31))

    def see(self, frame: np.ndarray, reward: float, vector: np.ndarray | None = None) -> None:
        """Adds a frame `[*spec.frame]` and the raw reward that came with it. The first frame has no reward.

        `vector` is the frame's, float32 `[spec.vectors]`.
        """
        is_first, self.is_new = self.is_new, False
        if is_first:
            self.observation, self.past = np.concatenate([frame] * self._spec.stack), blank_past(self._spec, 1)
        else:
            self.observation = np.concatenate((self.observation[len(frame) :], frame))
        if self.past and self._spec.vectors:
            self.past.vector[:] = vector
        if self.past and not is_first:
            self.past.last_reward[:] = clip_rewards(np.asarray(reward, np.float32), self._spec.reward_clip)


def stacked(spec: Spec, observation: Any) -> tuple[np.ndarray, tuple[int, ...]]:
    """Checks stacked observations, which do not depend on a past.

    Args:
      observation: `[*spec.observation]` or a batch `[n, *spec.observation]`. Vectors of uint8 are divided by 255.

    Returns:
      The batch `[n, *spec.observation]` of dtype `spec.dtype`, and its shape without the observations, `()` or `(n,)`.

    Raises:
      ValueError: the observation has the wrong shape or type, or the network needs a past.
    """
    observation = np.asarray(observation)
    if spec.needs_past:
        needed = "recurrent network needs a past" if spec.state else "network for images and vectors needs both"
        raise ValueError(f"a {needed}; use run.policy(), which carries it")
    lead = observation.ndim - len(spec.observation)
    fits = lead in (0, 1) and observation.shape[lead:] == spec.observation
    if not (fits and np.can_cast(observation.dtype, spec.dtype, "same_kind")):
        wanted, given = f"{spec.dtype} {list(spec.observation)}", f"{observation.dtype} {list(observation.shape)}"
        raise ValueError(f"stacked observations are {wanted}, or a batch of these, but got {given}")
    batch = observation.astype(spec.dtype).reshape(-1, *spec.observation)
    if observation.dtype == np.uint8 and not spec.is_image:
        batch /= 255
    return batch, observation.shape[:lead]


def decide(learner: Learner, memories: Sequence[Memory], sample: bool) -> list[int]:
    """Chooses the next action of each environment. The memories keep it, and the outputs of the network.

    Args:
      learner: learner with the policy, `predict("base", observations, past)`.
      sample: whether to sample actions from the policy instead of taking the most probable ones.
    """
    observations = np.stack([memory.observation for memory in memories])
    logits, values, *states = learner.predict(
        "base", observations, concatenate_pasts([memory.past for memory in memories])
    )
    actions = []
    for i, memory in enumerate(memories):
        action = int(sample_actions(logits[i : i + 1], memory.rng)[0][0] if sample else logits[i].argmax())
        memory.logits, memory.value = logits[i], float(values[i])
        if memory.past and states:
            memory.past.state[0], memory.past.last_action[:] = states[0][i], action
        actions.append(action)
    return actions


class Policy:
    """A trained policy, as returned by `gunreal.Run.policy`. It acts on an environment's own observations.

    As in training, it converts observations to frames, stacks them and keeps the state of a recurrent network. Call
    `reset` at the start of an episode, and `act` for each observation:

        observation, _ = env.reset(seed=policy.reset())
        action = policy.act(observation)

    Attributes:
      num_envs: number of environments, or None for a single one whose observations have no batch axis.
      sample: whether actions are sampled from the policy instead of taking the most probable one.
    """

    def __init__(
        self,
        learner: Learner,
        config: Config,
        spec: Spec,
        raw: Raw,
        num_envs: int | None = None,
        *,
        sample: bool = True,
        seed: int = 1,
    ):
        """See `gunreal.Run.policy`."""
        if num_envs is not None and num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}; give at least 1, or None for one environment without a batch")
        self.num_envs, self.sample = num_envs, sample
        self._learner, self._config, self._spec, self._raw, self._seed = learner, config, spec, raw, seed
        self._memories = [Memory(spec) for _ in range(num_envs or 1)]
        self._next = list(range(len(self._memories)))  # number of each environment's next episode
        self._seeds: list[int] = []
        self._converters: dict[tuple[int, ...], Converter] = {}

    def reset(self, ended: Any = None) -> Any:
        """Begins new episodes. The next observation is the first one of an episode.

        Args:
          ended: bool `[num_envs]`, the environments that begin a new episode. None means all.

        Returns:
          Seeds for the resets of the environments: an int, or a list `[num_envs]`. With these seeds, the episodes are
          those that `gunreal evaluate` plays with the same `seed`. Environment i plays episodes i, i + num_envs and so
          on.

        Raises:
          ValueError: `ended` has another shape.
        """
        which = np.ones(len(self._memories), bool) if ended is None else np.atleast_1d(np.asarray(ended, bool))
        if which.shape != (len(self._memories),):
            raise ValueError(f"reset() takes a bool for each of {len(self._memories)} environments, not {which.shape}")
        if not self._seeds:
            which, self._seeds = np.ones_like(which), [0] * len(which)
        for i in np.nonzero(which)[0].tolist():
            self._seeds[i] = self._memories[i].begin(self._seed, self._next[i])
            self._next[i] += len(self._memories)
        return list(self._seeds) if self.num_envs else self._seeds[0]

    def act(self, observation: Any, reward: Any = None) -> Any:
        """Chooses actions for an environment's own observations.

        Args:
          observation: an observation, as `env.reset` and `env.step` return it, or a batch `[num_envs, ...]` of them.
            Images may have any size and may be gray or RGB, with channels first or last.
          reward: the reward that came with it, or `[num_envs]`. Only recurrent networks need it, from the second
            observation of an episode on.

        Returns:
          An action for `env.step`: an int, or int64 `[num_envs]`.

        Raises:
          ValueError: `reset` has not been called, an observation is unlike those of training, or the reward is missing.
        """
        if not self._seeds:
            raise ValueError("call reset() before the first act()")
        entry = self._raw.entry(observation)
        entries = [entry] if self.num_envs is None else entry
        if len(entries) != len(self._memories):
            raise ValueError(f"act() takes {len(self._memories)} observations at once, but got {len(entries)}")
        if reward is None and self._spec.state and not all(memory.is_new for memory in self._memories):
            raise ValueError("the recurrent network takes the last reward too; use act(observation, reward)")
        rewards = np.broadcast_to(np.asarray(0.0 if reward is None else reward, np.float32), len(self._memories))
        frames = [self._frame(entry) for entry in entries]  # all of them first, so that an error changes nothing
        each = [observation]
        if self.num_envs is not None:
            each = [{key: observation[key][i] for key in self._raw.vectors} for i in range(len(frames))]
        vectors = [self._raw.vector(self._config.env, one) for one in each]
        for memory, frame, last, vector in zip(self._memories, frames, rewards.tolist(), vectors, strict=True):
            memory.see(frame, last, vector)
        actions = [self._raw.first_action + action for action in decide(self._learner, self._memories, self.sample)]
        return actions[0] if self.num_envs is None else np.array(actions, np.int64)

    @property
    def observation(self) -> np.ndarray:
        """The stacked observations of the last `act`, `[*spec.observation]` or `[num_envs, *spec.observation]`."""
        return self._last("observation")

    @property
    def logits(self) -> np.ndarray:
        """The logits of the policy in the last `act`, float32 `[num_actions]` or `[num_envs, num_actions]`."""
        return self._last("logits")

    @property
    def value(self) -> np.ndarray:
        """The value predicted in the last `act`, on the scale of clipped rewards, `[]` or `[num_envs]`."""
        return self._last("value")

    def _last(self, name: str) -> np.ndarray:
        if not all(hasattr(memory, "logits") for memory in self._memories):
            raise ValueError("call act() first")
        found = np.array([getattr(memory, name) for memory in self._memories])
        return found[0] if self.num_envs is None else found

    def _frame(self, observation: Any) -> np.ndarray:
        """The frame of one observation. Images may differ from those of training in size and color."""
        space, shape = self._raw.space, np.shape(observation)
        given = np.asarray(observation).dtype
        fits = len(shape) in (2, 3) and given == np.uint8 if is_image(space) else shape == space.shape
        if fits and shape not in self._converters:
            seen = spaces.Box(0, 255, shape, np.uint8) if is_image(space) else space
            try:
                self._converters[shape] = converter(self._config, seen)[2]
            except ConfigError:  # such as stacked frames
                fits = False
        if not fits:
            batch = f", with a batch axis of {self.num_envs}" if self.num_envs else ""
            wanted = f"{space.dtype} {list(space.shape)}" if isinstance(space, spaces.Box) else f"{space}"
            fix = "; for stacked frames use run.act()" if shape == self._spec.observation else ""
            raise ValueError(f"act() takes observations of {wanted}{batch}, but got {given} {list(shape)}{fix}")
        frame = np.empty(self._spec.frame, self._spec.dtype)
        self._converters[shape](observation, frame)
        if frame.dtype.kind == "f" and not np.isfinite(frame).all():
            raise ValueError("act() takes finite numbers, but the observation has NaN or infinity")
        return frame
