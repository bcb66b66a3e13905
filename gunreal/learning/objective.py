"""The contract of an objective: one small class that says what the network learns from the steps of the agents.

The library uses an objective in three places:

1. Before anything starts, `settings`, `resolved`, `check` and `without_effect` choose and check the settings of the
   run.
2. `inputs` turns the rollouts of a training batch into the arrays of the loss. The trainers call it with NumPy, and
   device runs compile it with JAX. `prepared` is then called once with the whole batch, before `uses` divides it into
   minibatches.
3. `loss` is minimized together with the losses of the tasks, `total = base + sum(weight_i * loss_i)`. After every
   `phase().batches` training batches, `phase_loss` is minimized on all of them, without the tasks.

`inputs` and `prepared` use the namespace of their arrays, `x.__array_namespace__()`, as the methods of tasks do. The
file of an objective must not import Keras when it is loaded. Import it inside `loss`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from gunreal.config.objective import ObjectiveSettings
from gunreal.experience.rollouts import Rollouts


@dataclasses.dataclass(frozen=True)
class Objective(ObjectiveSettings):
    """Base class of all objectives. An objective is a frozen dataclass whose fields are its options.

    In shapes, B is the number of rollouts, T the number of steps and A the number of actions.
    """

    def inputs(self, rollouts: Rollouts) -> dict[str, Any]:
        """The arrays of the loss, `[B, T]` each, besides "action" and "mask"."""
        raise NotImplementedError(f"{type(self).__name__} has no inputs(self, rollouts); define it")

    def part(self, rollouts: Rollouts) -> dict[str, Any]:
        """The objective's part of a batch: "action" int32, "mask" float32 and `inputs`, `[B, T]` each.

        With bonuses that have a value of their own, there are also "bonus_<name>", the `inputs` for these.
        """
        bonus = {} if rollouts.bonus is None else self.inputs(rollouts.bonus)
        found = {"action": rollouts.action, "mask": rollouts.mask, **self.inputs(rollouts)}
        return found | {f"bonus_{name}": array for name, array in bonus.items()}

    def prepared(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """The part after what needs the whole training batch, such as a normalization."""
        return dict(part)

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The loss, a scalar, and its metrics, scalars by name. It must be a pure function that uses `keras.ops` only.

        The metrics have "loss_base", and "return_mean" and "return_deviation", the moments of the returns or targets by
        which the values are normalized. With bonuses that have a value of their own, they also have "bonus_return_mean"
        and "bonus_return_deviation". `gunreal.learning.losses.return_moments` computes them.

        Args:
          outputs: "logits" `[B, T, A]`, "value" `[B, T]` in units of reward, and "scale", the standard deviation of the
            returns. Divide value errors by it. With bonuses that have a value of their own, also "bonus_value"
            and "bonus_scale".
          batch: the objective's part of a minibatch, and the scalars "entropy" and "value_weight", the weights of the
            run, and "progress", the share of the training budget that has been used, from 0 to 1.
        """
        raise NotImplementedError(f"{type(self).__name__} has no loss(self, outputs, batch); define it")

    def outputs(self, policy_value: Callable[[Any], dict[str, Any]], hidden: Any) -> dict[str, Any]:
        """The outputs for `loss`, from the torso's last layer. The default is `policy_value(hidden)`.

        Args:
          policy_value: applies the policy and value layers to features `[B, T, F]`.
          hidden: the features. `ops.stop_gradient(hidden)` keeps a gradient from the torso.
        """
        return policy_value(hidden)

    def phase_loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The loss of `phase`, and its metrics. It is as `loss`.

        The outputs are `policy_value(hidden)`. The batch also has "old_logits" `[B, T, A]` and "old_value" `[B, T]`,
        which are those at the beginning of the phase.
        """
        raise NotImplementedError(f"{type(self).__name__} has no phase_loss(self, outputs, batch); define it")

    def exploration(self, progress: float) -> float:
        """The probability of a random action at a share of the training budget. Evaluations use that of its end, 1."""
        return 0.0

    def acting(self, logits: Any, value: Any, exploration: Any) -> tuple[Any, Any]:
        """What agents act on: the logits `[N, A]` from which they sample actions, and the values `[N]` of their states.

        Args:
          logits: the network's logits `[N, A]`.
          value: the network's values `[N]`.
          exploration: probability of a random action.
        """
        return logits, value
