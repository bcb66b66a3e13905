"""The contract of an auxiliary task: one small class.

The library uses a task in three places:

1. Before anything starts, `check` is called once.
2. In the agent processes (NumPy only), `sample` picks a sequence from the agent's replay ring. Once the bootstrap has
   come back from the task's prediction queue, `targets` turns the sequence into arrays of fixed shapes.
3. In the server, `head` adds layers to the shared torso. `loss` is minimized together with the loss of the
   actor-critic, `total = base + sum(weight_i * loss_i)`.

`sample` and `targets` must not import Keras, because agent processes never load a framework. Import it inside `head`,
`loss` and `bootstrap`. `gunreal.testing.check_task` tests a task against these rules.

Device runs have no agent processes. They need a second form of `targets` for all agents at once, `targets_batch`. A
task that defines `sample` also needs `sample_batch`. Without these methods, a task can be used with the parallel runner
only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from gunreal.experience.replay import RESET, Replay
from gunreal.experience.spec import RecordedField, Spec

if TYPE_CHECKING:
    from gunreal.tasks.batched import BatchReplay, Sequences

DRAWS = 4  # random numbers per sequence for `AuxiliaryTask.sample_batch`


class ReplaySequence(NamedTuple):
    """A reference to successive steps of one agent's replay ring.

    Attributes:
      first: absolute number of the first step.
      length: number of steps to learn from, 1 <= length <= `AuxiliaryTask.length(t_max)`. Rows from `length` on are
        padding (mask 0). The bootstrap state is the observation at `first + length`.
    """

    first: int
    length: int


@dataclasses.dataclass(frozen=True)
class AuxiliaryTask:
    """Base class of all auxiliary tasks. A task is a frozen dataclass whose fields are its options.

    In shapes, B is the number of sequences in a batch, T the number of steps, F the number of features and A the number
    of actions.

    Attributes:
      name: name of the head, the prediction queue, the metric `loss_<name>` and the options (`--task name.weight=0.1`).
      features: input of the head: "hidden" (the torso's last layer), "conv" (the flat convolution features), or "both"
        (a `gunreal.learning.torso.Features`). The recurrence is not computed for a task that uses "conv" alone.
      bootstrap: None, or a method `bootstrap(outputs) -> tensor [n, ...]` for the state after a sequence. A task with
        this method has its own prediction queue and threads. `outputs` has a time axis of length 1.
      targets_batch: None, or the batch form of `targets`: a method `targets_batch(replay, sequences, bootstraps)` that
        returns the same arrays with a leading axis N. It uses `keras.ops` only.
      weight: weight of the loss in the total.
    """

    name: ClassVar[str]
    features: ClassVar[str] = "hidden"
    bootstrap: ClassVar[Callable[..., Any] | None] = None
    targets_batch: ClassVar[Callable[..., dict[str, Any]] | None] = None
    weight: float = 1.0

    def check(self, spec: Spec) -> None:
        """Raises ValueError, with a message of one line, if the task does not fit the environment."""

    def length(self, t_max: int) -> int:
        """Number of rows (observations) of each sequence that go through the network."""
        return t_max

    def record(self, spec: Spec) -> dict[str, RecordedField]:
        """Extra arrays to store with every step. The keys are the names to pass to `replay.get`."""
        return {}

    def sample(self, replay: Replay, rng: np.random.Generator) -> ReplaySequence | None:
        """Picks a sequence to learn from. The default is `uniform_sequence`.

        Returns None if the ring has no suitable sequence yet.
        """
        return uniform_sequence(replay, rng)

    def sample_batch(self, replay: BatchReplay, draws: Any) -> Sequences:
        """The batch form of `sample`. It uses `keras.ops` only. See `gunreal.tasks.batched`.

        Args:
          replay: the replays of N agents.
          draws: uniform random numbers in [0, 1), float32 `[N, DRAWS]`.

        Returns:
          A sequence of each agent, chosen with the same probability as by `sample`.
        """
        from gunreal.tasks.batched import uniform_sequences

        return uniform_sequences(replay, draws)

    def targets(self, replay: Replay, sequence: ReplaySequence, bootstrap: np.ndarray | None) -> dict[str, np.ndarray]:
        """Computes the arrays for the loss.

        Args:
          replay: the agent's replay ring.
          sequence: the sequence that `sample` returned.
          bootstrap: the result of `bootstrap(outputs)` for the state after the sequence, without the batch axis. None
            for a task without a bootstrap.

        Returns:
          Arrays by name. Their shapes must not vary; pad the steps from `sequence.length` on.
        """
        raise NotImplementedError(f"{type(self).__name__} has no targets(self, replay, sequence, bootstrap); define it")

    def head(self, spec: Spec) -> Any:
        """Makes a Keras layer that maps float32 features `[B, T, F]` to the `outputs` of `loss`.

        If the layer's `call` has a `batch` argument, it receives the batch of `loss`. Predictions can then depend on
        the targets, such as the actions taken. `batch` is None while the layer is built and for bootstraps, so create
        all weights in `build`.

        Return None to reuse the outputs of the actor-critic. They are a dict with "logits" `[B, T, A]`, "value"
        `[B, T]` and "scale", the standard deviation of the returns. Divide value errors by "scale".
        """
        return None

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """The unweighted loss, a scalar. It must be a pure function that uses `keras.ops` only.

        To record metrics of your own, such as an accuracy, return a tuple of the loss and a dict of scalars by name.
        The run's metrics then contain their means as `<task>_<metric>`.

        Args:
          outputs: outputs of the head.
          batch: the targets with a leading batch axis, "mask" `[B, T]` float32 and "progress" float32. The mask is 1
            for steps to learn from. It is 0 for padding, for steps that only reset an environment and for agents
            without a sequence. The progress is the share of the training budget that has been used, from 0 to 1.
        """
        raise NotImplementedError(f"{type(self).__name__} has no loss(self, outputs, batch); define it")


def uniform_sequence(replay: Replay, rng: np.random.Generator) -> ReplaySequence | None:
    """Samples a sequence of up to `t_max` steps. Its first step is uniform over the complete steps of the ring.

    A sequence never starts at a step that only resets the environment.

    Returns:
      The sequence, or None if the ring holds fewer than `t_max` steps.
    """
    t_max, oldest, end = replay.spec.t_max, replay.oldest, replay.end
    if end - oldest < t_max:
        return None
    for _ in range(100):  # at most every other step is only a reset
        first = int(rng.integers(oldest, end))
        if not replay.get("flags", first, 1)[0] & RESET:
            return ReplaySequence(first, replay.sequence_length(first, t_max))
    return None


def pad(rows: np.ndarray, length: int) -> np.ndarray:
    """Appends zeros to `rows` `[n, ...]` up to `[length, ...]`."""
    padded = np.zeros((length, *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    return padded
