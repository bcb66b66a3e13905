"""The parts of an objective and of an auxiliary task that the network uses.

`gunreal.objectives.base.Objective` and `gunreal.tasks.base.AuxiliaryTask` are the whole contracts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from gunreal.experience.spec import Spec

# What a part has besides the targets.
RESERVED = ("mask", "progress", "state", "observations", "past", "weight", "cell")
BASE = 0  # number of the prediction queue of the actor-critic, see `prediction_heads`


class LearnedObjective(Protocol):
    """What the policy and the value learn. See `Objective` for details."""

    def outputs(self, policy_value: Callable[[Any], dict[str, Any]], hidden: Any) -> dict[str, Any]:
        """The outputs of the policy and the value for the loss."""

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The loss, a scalar, and a dict of metrics."""

    def phase_loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The loss of a further phase."""


class LearnedTask(Protocol):
    """A head on the shared torso and its loss. See `AuxiliaryTask` for details."""

    @property
    def name(self) -> str:
        """Name of the head and the loss."""

    @property
    def features(self) -> str:
        """Input of the head: "hidden", "conv" or "both"."""

    @property
    def bootstrap(self) -> Callable[..., Any] | None:
        """Function that computes the bootstrap of a sequence, or None."""

    @property
    def average(self) -> float:
        """Rate of the moving averages of torso and head, or 0 for none."""

    @property
    def prioritized(self) -> bool:
        """Whether the loss reports priorities."""

    @property
    def trains_torso(self) -> bool:
        """Whether the gradient of the loss reaches the torso."""

    @property
    def rate(self) -> float:
        """Factor of the learning rate for the head's weights."""

    @property
    def max_grad_norm(self) -> float | None:
        """Largest norm of the head's gradient, if it is clipped apart."""

    @property
    def gate(self) -> Callable[..., Any] | None:
        """Function that computes a factor of the gradient at the torso, or None."""

    @property
    def bonus(self) -> Callable[..., Any] | None:
        """Function that computes a reward for an observation, or None."""

    @property
    def weight(self) -> float:
        """Weight of the loss in the total."""

    def length(self, t_max: int) -> int:
        """Number of rows of each sequence."""

    def state(self, spec: Spec) -> dict[str, Any]:
        """Arrays that gradients do not train, with their first values."""

    def head(self, spec: Spec) -> Any:
        """A Keras layer, or None."""

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """The unweighted loss, a scalar, or a tuple of the loss, a dict of metrics and perhaps a new state."""


def prediction_heads(tasks: Iterable[LearnedTask]) -> tuple[str, ...]:
    """The heads whose predictions agents request: "base", then the names of the tasks with a bootstrap.

    Each has its own prediction queue. The number of the queue is the place of the head.
    """
    return "base", *(task.name for task in tasks if task.bootstrap is not None)


def acting_head(spec: Spec) -> str:
    """The head from which agents act during training: "base", or "bonus", which has the bonuses of tasks too."""
    return "bonus" if spec.bonus else "base"
