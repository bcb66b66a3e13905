"""DrAC: the policy and the value of a shifted view should be those of the observation (Raileanu et al. 2021)"""

from __future__ import annotations

import dataclasses

from gunreal_representations.views import OfViews, shifted


@dataclasses.dataclass(frozen=True)
class Drac(OfViews):
    """The regularization of DrAC with the shifts of DrQ (Kostrikov et al. 2021)."""

    name = "drac"
    weight: float = 0.1

    def head(self, spec):
        from keras import layers

        class BothViews(layers.Layer):
            def call(self, hidden, batch=None, net=None, shift=self.shift):
                if net is None:
                    return hidden
                return {"own": net.policy_value(hidden), "view": net.policy_value(net.features(shifted(net, shift)))}

        return BothViews()

    def loss(self, outputs, batch):
        from keras import ops

        from gunreal.tasks import masked_mean

        own, view = outputs["own"], outputs["view"]
        wanted, found = ops.stop_gradient(ops.log_softmax(own["logits"])), ops.log_softmax(view["logits"])
        divergence = ops.sum(ops.exp(wanted) * (wanted - found), axis=-1)
        error = (ops.stop_gradient(own["value"]) - view["value"]) / own["scale"]
        return masked_mean(divergence + ops.square(error), batch["mask"])
