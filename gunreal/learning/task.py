"""What the network needs of an auxiliary task; `gunreal.tasks.base.AuxiliaryTask` is the whole contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gunreal.experience.spec import Spec


class LearnedTask(Protocol):
    """A head on the shared torso, and its loss. See `AuxiliaryTask` for each member."""

    @property
    def name(self) -> str:
        """Names the head and the loss."""

    @property
    def features(self) -> str:
        """What the head sees: "hidden", "conv" or "both"."""

    @property
    def bootstrap(self) -> Callable[..., Any] | None:
        """Computes what sequences bootstrap from, or None."""

    @property
    def weight(self) -> float:
        """Factor of the loss in the total."""

    def length(self, t_max: int) -> int:
        """Rows of each sequence."""

    def head(self, spec: Spec) -> Any:
        """A Keras layer, or None."""

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """The unweighted loss, a scalar."""
