"""Gates on the gradients of tasks at the shared layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from gunreal.config.plugins import calling
from gunreal.config.schema import ConfigError

if TYPE_CHECKING:
    from gunreal.learning.network import Network


def gated(
    network: Network, present: Collection[str], gradient: Callable[[Sequence[str]], Sequence[Any]]
) -> tuple[list[Any], dict[str, Any]]:
    """The gradient of the total loss, in which tasks have scaled theirs at the torso.

    Args:
      present: names of the terms of the loss: "base" and those of the tasks in the batch.
      gradient: function that computes the gradient of the sum of some terms, one array for each weight.

    Returns:
      The gradient, and metrics.
    """
    from keras import ops

    torso = [place for place, name in enumerate(network.names) if name.startswith("torso/")]
    gates = {task.name: task.gate for task in network.tasks if task.gate and task.name in present}
    base, metrics = list(gradient(["base"])), dict[str, Any]()
    total = base
    if others := [name for name in present if name not in gates and name != "base"]:
        total = [x + y for x, y in zip(base, gradient(others), strict=True)]

    def product(one: Sequence[Any], two: Sequence[Any]) -> Any:
        return sum(ops.sum(one[place] * two[place]) for place in torso)

    base_norm = ops.sqrt(product(base, base))
    for name, gate in gates.items():
        own = gradient([name])
        norm = ops.sqrt(product(own, own))
        cosine = product(own, base) / ops.maximum(norm * base_norm, 1e-12)
        with calling(f"task {name!r}: gate()"):
            factor = ops.cast(ops.convert_to_tensor(gate(cosine, norm, base_norm)), "float32")
        if shape := tuple(factor.shape):
            raise ConfigError(f"task {name!r}: gate() returns shape {shape}; return a scalar")
        metrics |= {f"{name}_cosine": cosine, f"{name}_norm": norm, f"{name}_gate": factor}
        scaled = [factor * x if place in torso else x for place, x in enumerate(own)]
        total = [x + y for x, y in zip(total, scaled, strict=True)]
    return total, metrics
