"""The contract of an auxiliary task: one small class.

The library uses a task in three places:

1. Before anything starts, `check` is called once.
2. For the agents that step together, `sample` draws a sequence from each replay. Once the bootstraps have come back
   from the task's prediction queue, `targets` turns the sequences into arrays of fixed shapes. Agent processes call
   both with NumPy, and device runs compile both with JAX.
3. In the server, `head` adds layers to the shared torso. `loss` is minimized together with the loss of the
   actor-critic, `total = base + sum(weight_i * loss_i)`.

`sample` and `targets` use `replay.xp`, the namespace of their arrays. They keep to what the Python array API standard
has, such as `xp.where` and `xp.astype`, and to shapes that do not depend on data. They must not import Keras, because
agent processes never load a framework. Import it inside `head`, `loss` and `bootstrap`. `gunreal.testing.check_task`
tests a task against these rules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from gunreal.config.schema import ConfigError
from gunreal.experience.replay import Replay
from gunreal.experience.sequences import Sequences, WeightedSequences, uniform_sequences
from gunreal.experience.spec import RecordedField, Spec

# What a part has besides the targets.
RESERVED = ("mask", "progress", "state", "observations", "past", "weight", "cell")
BASE = 0  # number of the prediction queue of the actor-critic, see `prediction_heads`


@dataclasses.dataclass(frozen=True)
class AuxiliaryTask:
    """Base class of all auxiliary tasks. A task is a frozen dataclass whose fields are its options.

    In shapes, N is the number of agents that step together, B the number of sequences in a batch, T the number of
    steps, F the number of features and A the number of actions.

    Attributes:
      name: name of the head, the prediction queue, the metric `loss_<name>` and the options (`--task name.weight=0.1`).
      features: input of the head: "hidden" (the torso's last layer), "conv" (the flat convolution features), or "both"
        (a `gunreal.learning.torso.Features`). The recurrence is not computed for a task that uses "conv" alone.
      bootstrap: None, or a method `bootstrap(outputs) -> tensor [n, ...]` for the state after a sequence. A task with
        this method has its own prediction queue and threads. `outputs` has a time axis of length 1.
      bonus: None, or a method `bonus(outputs, observations, state) -> tensor [n]`, a reward of the task's own for each
        of n observations. It is added to the clipped reward of the step that led there, and so are those of other
        tasks. Scores do not contain it. `outputs` has a time axis of length 1, `observations` is `[n,
        *spec.observation]`, and `state` has the arrays of `state()`.
      bonus_steps: number of observations from which the bonus is computed. With 2, the time axis of `outputs` has the
        one before and this one, and the head gets a batch that has "action" `[n, 2]`, of which the first one led
        here. The first observation of an episode has no bonus.
      bonus_discount: 0, or the discount of the bonus. It then has a value of its own, which does not end with the
        episode. The policy learns from the sum of both advantages.
      average: 0, or the rate of moving averages of the torso and the head, which the head finds as `net.average`. Each
        update moves them by this share of the way to the weights.
      gate: None, or a method `gate(cosine, norm, base_norm) -> factor` of the task's gradient at the torso. `cosine` is
        that of the angle to the gradient of the actor-critic, and `norm` and `base_norm` are the sizes of both.
      trains_torso: whether the loss trains the torso. Without it the task is a probe, which only measures what its head
        can find in the features.
      rate: factor of the learning rate for the weights of the head.
      max_grad_norm: None, or the norm to which the gradient of the head is clipped. It then does not count in the norm
        of the other weights, and neither does that of a probe. 0 turns clipping off.
      prioritized: whether the loss reports priorities, by which `prioritized_sequences` draws. They are the item
        "priority" of its dict of metrics: `[B]` for each sequence or `[B, T]` for each step, 0 or more. The replay
        keeps the newest one of each step as "<task>.priority".
      replays: number of sequences for each rollout of an agent and each of the `updates`.
      updates: number of epochs over a batch of rollouts in which the task takes part, from the first one. It learns
        from other sequences in each, so an agent draws `replays * updates` of them for a rollout.
      weight: weight of the loss in the total.
    """

    name: ClassVar[str]
    features: ClassVar[str] = "hidden"
    bootstrap: ClassVar[Callable[..., Any] | None] = None
    bonus: ClassVar[Callable[..., Any] | None] = None
    bonus_steps: ClassVar[int] = 1
    bonus_discount: ClassVar[float] = 0.0
    average: ClassVar[float] = 0.0
    gate: ClassVar[Callable[..., Any] | None] = None
    trains_torso: ClassVar[bool] = True
    rate: ClassVar[float] = 1.0
    max_grad_norm: ClassVar[float | None] = None
    prioritized: ClassVar[bool] = False
    replays: ClassVar[int] = 1
    updates: ClassVar[int] = 1
    weight: float = 1.0

    def check(self, spec: Spec) -> None:
        """Raises ValueError, with a message of one line, if the task does not fit the environment."""

    def length(self, t_max: int) -> int:
        """Number of rows (observations) of each sequence that go through the network."""
        return t_max

    @property
    def per_rollout(self) -> int:
        """Number of sequences that an agent draws for a rollout."""
        return self.replays * self.updates

    def record(self, spec: Spec) -> dict[str, RecordedField]:
        """Extra arrays to store with every step. The keys are the names to pass to `replay.get`."""
        return {}

    def source(self, spec: Spec) -> str:
        """Path of a recording, such as one of expert episodes, to draw sequences from instead of the agents' replay.

        `sample` and `targets` then get the recording as their replay, in the server. It has "frame", "action",
        "reward", "flags" and "age". The default, "", means the agents' replay.
        """
        return ""

    def sample(self, replay: Replay, draws: Any) -> Sequences | WeightedSequences:
        """Draws a sequence of each agent to learn from. The default is `uniform_sequences`.

        Args:
          replay: the replays of N agents, with at least one step.
          draws: the only randomness: uniform random numbers in [0, 1), float32 `[N, DRAWS]`.

        Returns:
          First steps and lengths, int `[N]`. The length is 0 for an agent without a suitable sequence. Otherwise it is
          at most `length(t_max)`, and the sequence ends with its first truncated step. `WeightedSequences` also have
          importance weights, which `loss` finds as `batch["weight"]`, float32 `[B]`.
        """
        return uniform_sequences(replay, draws)

    def targets(self, replay: Replay, sequences: Sequences, bootstraps: Any) -> dict[str, Any]:
        """Computes the arrays for the loss.

        Args:
          replay: the replays of N agents, as they were for `sample`.
          sequences: the sequences that `sample` returned. Where the length is 0, the first step is `replay.oldest`.
          bootstraps: the results of `bootstrap(outputs)` for the states after the sequences, float32 `[N, ...]`. None
            for a task without a bootstrap.

        Returns:
          Arrays `[N, ...]` by name. Steps from `sequences.length` on do not count, see `pad`.
        """
        form = "targets(self, replay, sequences, bootstraps)"
        raise NotImplementedError(f"{type(self).__name__} has no {form}; define it")

    def state(self, spec: Spec) -> dict[str, Any]:
        """Arrays that gradients do not train, float32, int32 or bool, with their first values.

        The loss reads them as `batch["state"]` and may return new ones. They are part of checkpoints. In this method,
        the initializers of Keras draw other values for each seed of the run.
        """
        return {}

    def head(self, spec: Spec) -> Any:
        """Makes a Keras layer that maps float32 features `[B, T, F]` to the `outputs` of `loss`.

        If the layer's `call` has a `batch` argument, it receives the batch of `loss`. Predictions can then depend on
        the targets, such as the actions taken. If it has a `net` argument, it receives a `gunreal.learning.net.Net`:
        the observations, the features of other observations, the policy and the value, random numbers, averages and
        the arrays of `state`. Both are None while the layer is built and for bootstraps, and the batch also for
        bonuses of one observation, so create all weights in `build`.

        Return None to reuse the outputs of the actor-critic. They are a dict with "logits" `[B, T, A]`, "value"
        `[B, T]` and "scale", the standard deviation of the returns. Divide value errors by "scale".
        """
        return None

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """The unweighted loss, a scalar. It must be a pure function that uses `keras.ops` only.

        To record metrics of your own, such as an accuracy, return a tuple of the loss and a dict of scalars by name.
        The run's metrics then contain their means as `<task>_<metric>`. A third item of the tuple is a dict of arrays
        that replace those of `state`. Its other arrays stay as they are.

        Args:
          outputs: outputs of the head.
          batch: the targets with a leading batch axis, "mask" `[B, T]` float32, "progress" float32, and "state", the
            arrays of `state` by name, if there are any. The mask is 1 for steps to learn from. It is 0 for padding,
            for steps that only reset an environment and for agents without a sequence. The progress is the share of
            the training budget that has been used, from 0 to 1.
        """
        raise NotImplementedError(f"{type(self).__name__} has no loss(self, outputs, batch); define it")

    def show(self, outputs: Any, length: int) -> dict[str, Any]:
        """What `gunreal watch` shows of the newest step besides the loss, by name.

        A number, a vector or a dict of numbers is shown as bars, and an array of more axes as a map of its last two,
        with the maximum over the others. The default shows all arrays.

        Args:
          outputs: outputs of the head for one sequence that ends with the newest step, NumPy `[T, ...]`.
          length: number of steps T.
        """
        arrays = outputs if isinstance(outputs, Mapping) else {"output": outputs}
        arrays = {name: x for name, x in arrays.items() if isinstance(x, np.ndarray)}
        return {name: x[-1] if x.shape[:1] == (length,) else x for name, x in arrays.items()}


def of_tasks(spec: Spec, tasks: Collection[AuxiliaryTask]) -> Spec:
    """A spec with the bonuses and the priorities of tasks.

    Raises:
      ConfigError: bonuses do not fit each other or the network.
    """
    giving = [task for task in tasks if task.bonus is not None]
    for task in giving:
        if task.bonus_steps not in (1, 2) or not 0 <= task.bonus_discount < 1:
            both = f"bonus_steps {task.bonus_steps} and bonus_discount {task.bonus_discount}"
            raise ConfigError(f"task {task.name!r} has {both}; use 1 or 2, and a number of at least 0 and below 1")
        if task.bonus_steps == 2 and spec.vectors:
            what = "has a bonus of two observations, which does not work with vectors beside images"
            raise ConfigError(f"task {task.name!r} {what}")
    if len({task.bonus_discount for task in giving}) > 1:
        both = ", ".join(f"{task.name} {task.bonus_discount:g}" for task in giving)
        raise ConfigError(f"the bonuses of tasks share one value, but have several values of bonus_discount: {both}")
    return spec._replace(
        bonus=bool(giving),
        bonus_discount=max((task.bonus_discount for task in giving), default=0),
        bonus_steps=max((task.bonus_steps for task in giving), default=1),
        priorities=tuple(task.name for task in tasks if task.prioritized),
    )


def prediction_heads(tasks: Iterable[AuxiliaryTask]) -> tuple[str, ...]:
    """The heads whose predictions agents request: "base", then the names of the tasks with a bootstrap.

    Each has its own prediction queue. The number of the queue is the place of the head.
    """
    return "base", *(task.name for task in tasks if task.bootstrap is not None)


def acting_head(spec: Spec) -> str:
    """The head from which agents act during training: "base", or "bonus", which has the bonuses of tasks too."""
    return "bonus" if spec.bonus else "base"
