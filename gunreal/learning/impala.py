"""The residual network of IMPALA (Espeholt et al. 2018, figure 3, right), without its LSTM."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from gunreal.config.plugins import option
from gunreal.learning.architecture import Architecture


@dataclasses.dataclass(frozen=True)
class Impala(Architecture):
    """IMPALA's residual network: 15 convolutions in three sections, each of which halves the image.

    Fields:
      width: factor of the numbers of filters, which are 16, 32 and 32.
    """

    name: ClassVar[str] = "impala"
    width: int = option(1, low=1)

    def body(self, x: Any, seed: int) -> Any:
        """See `Architecture.body`."""
        from keras import layers

        for filters in (16, 32, 32):
            filters *= self.width
            x = layers.Conv2D(filters, 3, padding="same")(x)
            x = layers.MaxPooling2D(3, 2, padding="same")(x)
            for _ in range(2):
                y = layers.Conv2D(filters, 3, padding="same")(layers.ReLU()(x))
                y = layers.Conv2D(filters, 3, padding="same")(layers.ReLU()(y))
                x = layers.Add()([x, y])
        return layers.ReLU()(x)
