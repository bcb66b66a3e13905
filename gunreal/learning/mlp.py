"""A network without convolutions."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from gunreal.learning.architecture import Architecture


@dataclasses.dataclass(frozen=True)
class Perceptron(Architecture):
    """Two layers of `hidden` units, tanh, for vectors. The "conv" features are those of the first layer."""

    name: ClassVar[str] = "mlp"
    takes_images: ClassVar[bool] = False

    def body(self, x: Any, seed: int) -> Any:
        """See `Architecture.body`."""
        from gunreal.learning.building import dense

        return dense("fc1", self.hidden, math.sqrt(2), seed, "tanh")(x)

    def top(self, x: Any, seed: int) -> Any:
        """See `Architecture.top`."""
        from gunreal.learning.building import dense

        return dense("fc2", self.hidden, math.sqrt(2), seed + 1, "tanh")(x)
