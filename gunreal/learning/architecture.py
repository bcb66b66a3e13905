"""The contract of a network: one small class that makes the layers shared by policy, value and tasks."""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Any, ClassVar

from gunreal.experience.spec import Spec


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Base class of all networks. A network is a frozen dataclass whose fields are its options.

    The library scales and normalizes observations, applies the layers, and adds the policy, the value and the heads of
    the tasks. A field with the name of a setting, such as `hidden`, gets the value of that setting.

    Layers without a seed of their own get one that depends on the seed of the run. Layers must have no untrained state,
    such as that of batch normalization. Layers that are given a name keep it in checkpoints.

    Attributes:
      name: name of the network, as in `--network name`.
      takes_images: whether `body` gets images. If not, it gets flat vectors, also of images.
      hidden: number of units in the last layer (`--hidden`).
    """

    name: ClassVar[str]
    takes_images: ClassVar[bool] = True
    hidden: int = 256

    def check(self, spec: Spec) -> None:
        """Raises ValueError, with a message of one line, if the network does not fit the observations."""

    def state(self) -> int:
        """Number of floats in the state of `cell`. 0 for a network without memory."""
        return 0

    def takes_vector(self) -> bool:
        """Whether `body` has an argument `vector`."""
        return "vector" in inspect.signature(self.body).parameters

    def body(self, x: Any, seed: int) -> Any:
        """Applies the first layers.

        Of a `Dict` with an image and numbers, `x` is the image. The numbers join the flat output of `body`, before
        `top`. A `body` with a third argument `vector` uses them itself: it gets them as a symbolic tensor
        `[N, spec.vectors]`, normalized, or None where there are none.

        Args:
          x: symbolic Keras tensor of scaled observations. Images are `[N, rows, columns, channels]`, or `[N, channels,
            rows, columns]` with the layout nchw, which is then also the default of every Keras layer made here. Other
            observations are `[N, size]`.
          seed: seed of the initial weights, for layers that are given one.

        Returns:
          Images in the layout of `x`, or `[N, Fc]`. They are flattened to the features "conv" of the tasks.
        """
        raise NotImplementedError(f"{type(self).__name__} has no first layers; define body(self, x, seed)")

    def top(self, x: Any, seed: int) -> Any:
        """Applies the last layers. The default is one dense layer with ReLU.

        Args:
          x: symbolic Keras tensor `[N, Fc]`, the flat output of `body`, with the numbers beside an image.
          seed: seed of the initial weights, for layers that are given one.

        Returns:
          The features "hidden" of policy, value and tasks, `[N, Fh]`.
        """
        from gunreal.learning.building import dense

        return dense("top", self.hidden, math.sqrt(2), seed, "relu")(x)

    def cell(self, seed: int) -> Any:
        """Makes a Keras cell for a recurrent network, such as an LSTMCell, or returns None.

        The cell is applied after `top`. It gets the hidden features, the last action (one-hot) and the last reward, and
        its output takes the place of the hidden features. Its state is reset at the start of each episode.
        """
        return None
