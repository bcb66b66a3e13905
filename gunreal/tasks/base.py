"""The contract of an auxiliary task: one small class, of which the library needs nothing else.

A task's life: `check` once before anything starts; in the agent processes (NumPy only) `sample` picks a sequence of the
agent's replay ring and, when the bootstrap has come back from the task's prediction queue, `targets` turns it into
arrays of fixed shapes; in the server `head` adds its layers to the shared torso and `loss` is minimised with the A3C
loss, `total = a3c + sum(weight_i * loss_i)`.

`sample` and `targets` must not import Keras, as agent processes never load a framework: import it inside `head`, `loss`
and `bootstrap`. `gunreal.testing.check_task` holds a task against all of this.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gunreal.experience.replay import RESET, Replay
from gunreal.experience.spec import RecordedField, Spec


class ReplaySequence(NamedTuple):
    """Successive steps of one agent's replay ring, by reference.

    Attributes:
      first: absolute step number of its first step.
      length: how many steps are meant to be learned from, 1 <= length <= `AuxiliaryTask.length(t_max)`. Rows from
        `length` on are padding (mask 0). The bootstrap state is the observation at `first + length`.
    """

    first: int
    length: int


@dataclasses.dataclass(frozen=True)
class AuxiliaryTask:
    """Base class of the tasks; a plug-in overrides what it needs. A task is a frozen dataclass: its fields are options.

    Attributes:
      name: names the head, the prediction queue, the metrics (`loss_<name>`) and options (`--task name.weight=0.1`).
      features: what the head sees: "hidden" (the torso's last layer), "conv" (the flat convolution features), or
        "both", a `gunreal.learning.torso.Features`. A task that sees "conv" alone is spared the recurrence.
      bootstrap: None, or a method `bootstrap(outputs) -> tensor [n, ...]` computed at a sequence's last state. Having
        one gives the task a prediction queue with threads of its own; `outputs` has a time axis of length 1.
      weight: factor of the loss in the total.
    """

    name: ClassVar[str]
    features: ClassVar[str] = "hidden"
    bootstrap: ClassVar[Callable[..., Any] | None] = None
    weight: float = 1.0

    def check(self, spec: Spec) -> None:
        """Raises ValueError with one clear line where the task does not fit the environment."""

    def length(self, t_max: int) -> int:
        """How many rows (observations) of each sequence go through the network."""
        return t_max

    def record(self, spec: Spec) -> dict[str, RecordedField]:
        """Extra arrays to store with every step, by the name under which `replay.get` finds them."""
        return {}

    def sample(self, replay: Replay, rng: np.random.Generator) -> ReplaySequence | None:
        """Picks what to learn from; None where the ring has nothing suitable yet."""
        raise NotImplementedError

    def targets(self, replay: Replay, sequence: ReplaySequence, bootstrap: np.ndarray | None) -> dict[str, np.ndarray]:
        """Arrays for the loss, of shapes that never vary (pad what lies beyond `sequence.length`).

        `bootstrap` is what `bootstrap(outputs)` gave for this sequence's last state, without the batch axis; None for a
        task without one.
        """
        raise NotImplementedError

    def head(self, spec: Spec) -> Any:
        """A Keras layer from the features `[B, T, F]` float32 to what `loss` takes as `outputs`.

        A layer whose `call` has an argument `batch` is given `loss`'s: what it predicts may depend on the targets, such
        as the actions taken. `batch` is None where the layer is built (make all weights in `build`) and bootstraps.

        None: the task reuses the actor-critic's outputs, a dict with "logits" `[B, T, A]`, "value" `[B, T]` and
        "scale", the deviation of the returns: divide errors of the value by it.
        """
        return None

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """The unweighted loss, a scalar; `keras.ops` only, pure.

        `batch` holds the targets with a leading batch axis and "mask" `[B, T]` float32: 1 for steps to learn from, 0
        for padding, for the step that only resets an environment and for agents that had no sequence to give.
        """
        raise NotImplementedError


def uniform_sequence(replay: Replay, rng: np.random.Generator) -> ReplaySequence | None:
    """A sequence of up to `t_max` steps that starts at any complete step of the ring, each as likely.

    Steps that only reset the environment start none. None until the ring holds `t_max` steps.
    """
    t_max, oldest, end = replay.spec.t_max, replay.oldest, replay.end
    if end - oldest < t_max:
        return None
    for _ in range(100):  # at most every other step only resets
        first = int(rng.integers(oldest, end))
        if not replay.get("flags", first, 1)[0] & RESET:
            return ReplaySequence(first, replay.sequence_length(first, t_max))
    return None


def pad(rows: np.ndarray, length: int) -> np.ndarray:
    """`rows` `[n, ...]` with zeros appended to make `[length, ...]`."""
    padded = np.zeros((length, *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    return padded
