"""Phasic policy gradient as an objective (Cobbe et al. 2021, "Phasic Policy Gradient")."""

from __future__ import annotations

import dataclasses

from gunreal.config.objective import Phase
from gunreal.config.plugins import option
from gunreal.objectives.ppo import Ppo


@dataclasses.dataclass(frozen=True)
class Ppg(Ppo):
    """PPO whose value trains the torso in a phase of its own, in the variant with a single network (section 3.6).

    In the policy phase, no gradient of the value reaches the torso. After every `batches` batches, the auxiliary phase
    trains the value and the torso on all of them. A penalty keeps the policy as it was before the phase.

    Options, besides those of `Ppo`:
      batches: number of batches of a policy phase, N_pi in the paper.
      phase_epochs: number of passes of the auxiliary phase, E_aux in the paper.
      clone: weight of the penalty, beta_clone in the paper.
    """

    name = "ppg"
    epochs: int = option(1, low=1, high=100)
    batches: int = option(32, low=1)
    phase_epochs: int = option(6, low=1)
    clone: float = option(1.0, low=0)

    def phase(self):
        return Phase(self.batches, self.phase_epochs)

    def outputs(self, policy_value, hidden):
        from keras import ops

        return {**policy_value(ops.stop_gradient(hidden)), "logits": policy_value(hidden)["logits"]}

    def phase_loss(self, outputs, batch):
        """The paper's L^joint: the value loss and beta_clone times KL(pi_old, pi)."""
        from keras import ops

        from gunreal.learning import losses

        mask, value, found = batch["mask"], 0.0, {}
        for kind in ("", "bonus_") if "bonus_value" in outputs else ("",):
            returns, scale = batch[f"{kind}returns"], outputs[f"{kind}scale"]
            value = value + losses.value_loss(outputs[f"{kind}value"] / scale, returns / scale, mask)
            found |= losses.return_moments(returns, mask, kind)
        old = ops.log_softmax(batch["old_logits"])
        divergence = ops.sum(ops.exp(old) * (old - ops.log_softmax(outputs["logits"])), axis=-1)
        clone = losses.masked_mean(divergence, mask)
        loss = value + self.clone * clone
        return loss, found | {"loss_base": loss, "loss_value": value, "loss_clone": clone}
