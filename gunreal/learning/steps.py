"""Steps of heads that differ from those of the other weights: their clipping and their size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gunreal.learning.network import Network


class Steps:
    """What tasks ask for their own heads.

    Attributes:
      apart: places of the weights that are clipped apart, among all weights. They count in no other norm.
      rates: factors of the learning rate, by places of the weights.
    """

    def __init__(self, network: Network, max_grad_norm: float):
        """`max_grad_norm` is that of the run, and of a probe that has none of its own."""
        self.apart: set[int] = set()
        self.rates: dict[int, float] = {}
        self._clips: dict[str, tuple[list[int], float]] = {}
        for task in network.tasks:
            places = [place for place, name in enumerate(network.names) if name.split("/")[0] == task.name]
            most = task.max_grad_norm
            if places and (most is not None or not task.trains_torso):
                self._clips[task.name] = places, max_grad_norm if most is None else most
                self.apart.update(places)
            if task.rate != 1:
                self.rates |= dict.fromkeys(places, task.rate)

    def clipped(self, gradients: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The gradients with those `apart` clipped, and their norms before, by names of metrics."""
        from keras import ops

        found, norms = list(gradients), {}
        for name, (places, most) in self._clips.items():
            norm = norms[f"{name}_grad_norm"] = ops.sqrt(sum(ops.sum(ops.square(found[place])) for place in places))
            for place in places if most > 0 else ():
                found[place] = found[place] * (most / ops.maximum(norm, most))
        return found, norms

    def scaled(self, gradients: Sequence[Any], scale: Any) -> list[Any]:
        """`scale` times the gradients that are not `apart`, and the others as they are."""
        return [x if place in self.apart else scale * x for place, x in enumerate(gradients)]

    def taken(self, before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
        """The weights after a step, whose size is another one for some heads."""
        rates = (self.rates.get(place, 1.0) for place in range(len(before)))
        return [
            new if rate == 1 else old + rate * (new - old) for old, new, rate in zip(before, after, rates, strict=True)
        ]
