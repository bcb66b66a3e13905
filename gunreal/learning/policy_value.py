"""The layers of the policy and of the values, and the moments of the returns that values learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras import ops

from gunreal.experience.spec import Spec
from gunreal.learning.building import constants, dense
from gunreal.learning.normalizer import Moments, Statistics, rescaled

# Lower bounds of the standard deviation. The first avoids learning from the noise of values before there are rewards.
_LEAST_DEVIATION = {"return": 0.1, "bonus_return": 0.001}
_REMEMBERED = 100_000.0  # steps, counted once per epoch; returns grow as the policy improves


class PolicyValue:
    """The policy, the value, and the value of bonuses if these have one of their own.

    Attributes:
      layers: the layers by name.
      statistics: running moments of what the values learn, "return" and "bonus_return", or none.
    """

    def __init__(self, spec: Spec, normalize_returns: bool, seed: int):
        """`normalize_returns` is as in `network.Network`. The initial weights depend on the seed alone."""
        self.layers = {
            "policy": dense("policy", spec.num_actions, 0.01, seed),
            "value": dense("value", 1, 1.0, seed + 1),
        }
        self._values = {"return": self.layers["value"]}  # by what they learn
        if spec.bonus_discount:
            self._values["bonus_return"] = self.layers["bonus_value"] = dense("bonus_value", 1, 1.0, seed + 2)
        self.statistics: dict[str, Statistics] = {}
        for name in self._values if normalize_returns else ():
            self.statistics[name] = Statistics((), _LEAST_DEVIATION[name], _REMEMBERED)

    def __call__(self, hidden: Any) -> dict[str, Any]:
        """The outputs of the actor-critic for `hidden` features `[..., Fh]`.

        Returns:
          "logits" `[..., A]`.
          "value" `[...]`, in units of reward.
          "scale", a scalar in units of reward. Divide value errors by it.
          "bonus_value" and "bonus_scale", the same for bonuses, if they have a value of their own.
        """
        found = {"logits": self.layers["policy"](hidden)}
        for learned, layer in self._values.items():
            value, scale, name = ops.squeeze(layer(hidden), axis=-1), 1.0, learned.removesuffix("return")
            if learned in self.statistics:
                known = self.statistics[learned].now()
                scale = self.statistics[learned].deviation(known)
                factor, mean = constants(value, scale, known.mean)
                value = value * factor + mean
            found |= {f"{name}value": value, f"{name}scale": scale}
        return found

    def moments(self, weight: Any, metrics: Mapping[str, Any]) -> dict[str, Moments]:
        """The moments of the returns of a batch, by the names of `statistics`.

        Args:
          weight: 1 for the steps that count, float32 `[N]`.
          metrics: the metrics of the batch's loss.
        """
        count = ops.sum(weight)
        return {n: Moments(metrics[f"{n}_mean"], ops.square(metrics[f"{n}_deviation"]), count) for n in self.statistics}

    def absorbed(self, moments: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        """The variables that change with a batch's moments, with their new values.

        The layers of values are rescaled together with the moments, so that their predictions do not change.
        """
        changed: list[tuple[Any, Any]] = []
        for name, statistics in self.statistics.items():
            known, new = statistics.now(), statistics.merged(moments[name])
            kernel, bias = self._values[name].kernel, self._values[name].bias
            values = rescaled(kernel.value, bias.value, known, new, statistics.least, ops)
            changed += [*zip(statistics.variables, new, strict=True), *zip((kernel, bias), values, strict=True)]
        return changed
