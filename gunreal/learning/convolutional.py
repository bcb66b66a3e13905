"""The convolutional networks of the papers: small, large and lstm."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from gunreal.config import plugins
from gunreal.experience.spec import Spec
from gunreal.learning.architecture import Architecture


@dataclasses.dataclass(frozen=True)
class Small(Architecture):
    """16 filters 8x8 with stride 4, 32 filters 4x4 with stride 2, ReLU (A3C, UNREAL; GA3C section 3.2)."""

    name: ClassVar[str] = "small"

    def sizes(self) -> list[tuple[int, int, int]]:
        """Filters, kernel size and stride of each convolution. Convolutions are not padded."""
        return [(16, 8, 4), (32, 4, 2)]

    def check(self, spec: Spec) -> None:
        """Raises ValueError if nothing of the image is left after the convolutions."""
        size = min(spec.frame[1:])
        for _, kernel, stride in self.sizes():
            size = (size - kernel) // stride + 1 if size >= kernel else 0
        if size < 1:
            raise ValueError(f"frames of {spec.frame} are too small for the {self.name} network; use larger frames")

    def body(self, x: Any, seed: int) -> Any:
        """See `Architecture.body`."""
        from keras import initializers, layers

        for place, (filters, kernel, stride) in enumerate(self.sizes()):
            initializer = initializers.Orthogonal(math.sqrt(2), seed + place)
            x = layers.Conv2D(
                filters, kernel, stride, activation="relu", kernel_initializer=initializer, name=f"conv{place + 1}"
            )(x)
        return x

    def top(self, x: Any, seed: int) -> Any:
        """See `Architecture.top`."""
        from gunreal.learning.building import dense

        place = len(self.sizes())
        return dense(f"fc{place + 1}", self.hidden, math.sqrt(2), seed + place, "relu")(x)


@dataclasses.dataclass(frozen=True)
class Large(Small):
    """32 filters 8x8 with stride `first_stride`, 32 and 64 filters 4x4 with stride 2, ReLU (GA3C, footnote 2)."""

    name: ClassVar[str] = "large"
    first_stride: int = plugins.option(4, low=1, high=4)

    def sizes(self) -> list[tuple[int, int, int]]:
        """See `Small.sizes`."""
        return [(32, 8, self.first_stride), (32, 4, 2), (64, 4, 2)]


@dataclasses.dataclass(frozen=True)
class Recurrent(Small):
    """`small`, followed by an LSTM that also receives the last action and the last reward (UNREAL, section 3)."""

    name: ClassVar[str] = "lstm"

    def state(self) -> int:
        """The output and the memory of each unit."""
        return 2 * self.hidden

    def cell(self, seed: int) -> Any:
        """See `Architecture.cell`."""
        from keras import initializers, layers

        seed += len(self.sizes()) + 3  # after the seeds of the dense layers, so that small and lstm share theirs
        return layers.LSTMCell(
            self.hidden,
            kernel_initializer=initializers.GlorotUniform(seed),
            recurrent_initializer=initializers.Orthogonal(1.0, seed + 1),
            dtype="float32",  # its state lives through whole episodes
            name="lstm",
        )
