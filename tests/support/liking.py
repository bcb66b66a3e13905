"""A game without rewards, and a task that likes one of its actions."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np

from gunreal.envs.functional import Batched
from gunreal.tasks import AuxiliaryTask


def make() -> Batched:
    """Episodes of eight steps without rewards. The observation is 1 at the place of the last action."""

    def reset(key: Any) -> tuple[Any, Any]:
        from jax import numpy as jnp

        return jnp.int32(0), jnp.zeros(2)

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        import jax
        from jax import numpy as jnp

        return state + 1, jax.nn.one_hot(action, 2), jnp.zeros(()), state == 7, jnp.zeros((), bool)

    return Batched(reset, step, gymnasium.spaces.Box(0, 1, (2,), np.float32), gymnasium.spaces.Discrete(2))


@dataclasses.dataclass(frozen=True)
class Liking(AuxiliaryTask):
    """Gives a reward where the last action was 1."""

    name = "liking"
    reward: float = 2.0
    bonus_discount: float = 0.0

    def targets(self, replay, sequences, bootstraps):
        return {"liked": replay.get("frame", sequences.first, replay.spec.t_max)[..., 1]}

    def head(self, spec):
        from keras import layers

        return layers.Dense(1)

    def bonus(self, outputs, observations, state):
        return self.reward * observations[:, 1]

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.tasks import masked_mean

        loss = masked_mean(ops.square(outputs[..., 0]), batch["mask"])
        return loss, {"share": masked_mean(batch["liked"], batch["mask"])}


@dataclasses.dataclass(frozen=True)
class Pairs(Liking):
    """Gives a reward where the last action was 1, as the action itself says. Its bonus also tells what it has seen."""

    name = "pairs"
    bonus_steps = 2
    seen: float = 0.0

    def head(self, spec):
        from keras import layers, ops

        class Both(layers.Layer):
            def build(self, shape):
                self.dense = layers.Dense(1)
                self.dense.build(shape)

            def call(self, x, batch=None, net=None):
                found = self.dense(x)
                if net is None or batch is None or "liked" in batch:
                    return found
                action = ops.cast(batch["action"][..., None], x.dtype)
                return ops.concatenate([found, action, ops.cast(net.observations, x.dtype)], axis=-1)

        return Both()

    def bonus(self, outputs, observations, state):
        before, now = outputs[:, 0, 1:], outputs[:, 1, 1:]
        told = before[:, 1] + 10 * before[:, 2] + 100 * now[:, 1] + 1000 * now[:, 2]
        return self.reward * before[:, 0] + self.seen * told
