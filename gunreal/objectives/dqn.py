"""Deep Q-learning (Mnih et al. 2015)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gunreal.config.derived import anneal
from gunreal.config.plugins import option
from gunreal.config.schema import Config
from gunreal.learning.objective import Objective


@dataclasses.dataclass(frozen=True)
class Dqn(Objective):
    """Deep Q-learning from the replay, with n-step returns and optional priorities. In device runs only.

    Options:
      updates: number of updates per turn of a device run.
      steps: number of steps n in the n-step returns.
      target: number of updates between copies of the weights to the target network.
      double: double DQN: the current network chooses actions, and the target network evaluates them.
      priority: exponent of the replay priorities. 0 samples uniformly.
      final_exploration: final probability of a random action. It starts at 1.
      exploration_share: share of the training budget over which this probability falls.
    """

    name: ClassVar[str] = "dqn"
    replays: ClassVar[bool] = True
    has_policy: ClassVar[bool] = False
    updates: int = option(4, low=1, high=1000)
    steps: int = option(3, low=1, high=100)
    target: int = option(100, low=1)
    double: bool = True
    priority: float = option(0.0, low=0, high=1)
    final_exploration: float = option(0.02, low=0, high=1)
    exploration_share: float = option(0.1, above=0, high=1)

    def settings(self, config: Config) -> Mapping[str, Any]:
        return {**super().settings(config), "entropy": 0.0}

    def without_effect(self, config: Config) -> Sequence[str]:
        # A resolved configuration has the entropy weight 0, which is the effect.
        names = ["value_weight", *(name for name in ("entropy", "entropy_end") if getattr(config, name))]
        classes = [task.rpartition("=")[2] for task in config.tasks]
        of_values = "vr" in classes or any(":" in name for name in classes)  # which may be a kind of vr
        return names if of_values else [*names, "normalize_returns"]

    def check(self, config: Config) -> None:
        """Raises ValueError for returns that do not fit into a sequence."""
        if self.steps > config.t_max:
            raise ValueError(f"dqn.steps {self.steps} is above t_max {config.t_max}; lower it, or raise t_max")

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The Huber loss of `q_target - Q(s_t, a_t)`, and its metrics.

        The logits are the Q values. With priorities, "weight" `[B]` has the importance weight of each sequence.
        """
        from keras import ops

        from gunreal.learning import losses

        q, mask = outputs["logits"], batch["mask"]
        taken = ops.sum(q * ops.one_hot(batch["action"], q.shape[-1], dtype=q.dtype), axis=-1)
        error = ops.abs(ops.stop_gradient(batch["q_target"]) - taken)
        huber = ops.where(error < 1, 0.5 * ops.square(error), error - 0.5)
        if "weight" in batch:
            huber = huber * ops.expand_dims(batch["weight"], 1)
        loss = losses.masked_mean(huber, mask)
        value = losses.masked_mean(ops.max(q, axis=-1), mask)
        metrics = {"loss_base": loss, "loss_value": loss, "value_mean": value}
        return loss, metrics | losses.return_moments(batch["q_target"], mask)

    def exploration(self, progress: float) -> float:
        """Falls linearly from 1."""
        return anneal(1.0, self.final_exploration, progress / self.exploration_share)

    def acting(self, logits: Any, value: Any, exploration: Any) -> tuple[Any, Any]:
        """The log-probabilities of the epsilon-greedy policy, and the largest Q values."""
        xp = logits.__array_namespace__()
        actions = logits.shape[-1]
        best = xp.eye(actions, dtype="float32")[logits.argmax(-1)]
        return xp.log(exploration / actions + (1 - exploration) * best + 1e-9), logits.max(-1)
