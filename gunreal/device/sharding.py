"""Several devices: where arrays are. Agents are divided among the devices, and weights are copied to each.

The program is that of a single device. XLA divides it by the places of its inputs and outputs, and adds up the
gradients of all devices. The step of the environments is divided explicitly, because XLA cannot divide calls of foreign
code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gunreal.config.derived import largest_divisor
from gunreal.config.schema import Config, ConfigError

_AXIS = "agents"


class Places:
    """The places of arrays on the devices of a run.

    Raises:
      ConfigError: there are fewer devices, or the agents of a batch cannot be divided among them.
    """

    def __init__(self, config: Config):
        found = jax.devices()
        count = len(found) if config.devices == "all" else int(config.devices)
        if count > len(found):
            raise ConfigError(f"devices is {count}, but JAX finds {len(found)}; use --devices {len(found)}, or all")
        groups = config.device_batches
        group = config.agents // groups
        if group % count:
            more = (group // count + 1) * count * groups
            fix = f"--devices {largest_divisor(group, count)}, or --agents {more} --device_batches {groups}"
            raise ConfigError(f"{group} agents of a batch cannot be divided among {count} devices; use {fix}")
        self.count = count
        self._mesh = Mesh(np.array(found[:count]), (_AXIS,))
        self.whole = self._place()

    def _place(self, *axes: str | None) -> NamedSharding:
        return NamedSharding(self._mesh, PartitionSpec(*axes))

    def agents(self, axis: int) -> NamedSharding:
        """The place of arrays whose `axis` is that of the agents."""
        return self._place(*[None] * axis, _AXIS)

    def divided(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """The step of environments, such that each device steps its own."""
        if self.count == 1:
            return step
        rows = PartitionSpec(_AXIS)
        return jax.shard_map(step, mesh=self._mesh, in_specs=(rows, rows), out_specs=rows, check_vma=False)

    def spread(self, batch: Any) -> Any:
        """Divides the rollouts of a minibatch among the devices, if their number allows it."""
        if len(batch["base"]["mask"]) % self.count:  # those of tasks are multiples of it
            return batch
        return jax.lax.with_sharding_constraint(batch, self.agents(0))
