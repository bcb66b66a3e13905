"""Terminal prediction: how soon will the episode end? (Kartal et al. 2019)"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gunreal.config.plugins import option
from gunreal.experience.replay import TERMINATED, Replay
from gunreal.experience.returns import n_step_returns
from gunreal.experience.sequences import Sequences
from gunreal.experience.spec import Spec
from gunreal.learning.task import AuxiliaryTask


@dataclasses.dataclass(frozen=True)
class TerminalPrediction(AuxiliaryTask):
    """Predicts the discounted termination of the episode: gamma^n, if it terminates after n further steps.

    Kartal et al. predict the fraction of the episode that has passed, which is known only after its end. The discounted
    termination can be learned from parts of episodes, by bootstrapping. Episodes that are truncated by a time limit
    bootstrap, too, so the task learns nothing in environments without terminations.

    Options:
      discount: discount factor gamma.
    """

    name = "tp"
    weight: float = 0.5
    discount: float = option(0.98, low=0, below=1)

    @staticmethod
    def bootstrap(outputs: Any) -> Any:
        """The prediction for the state after the sequence, `[n]`."""
        from keras import ops

        return ops.sigmoid(outputs[:, 0, 0])

    def targets(self, replay: Replay, sequences: Sequences, bootstraps: Any) -> dict[str, Any]:
        """`P_t = 1` for a step that terminates the episode, else `gamma P_{t+1}`: "returns" float32 `[N, t_max]`."""
        (first, length), t_max = sequences, replay.spec.t_max
        ends = replay.xp.astype(replay.get("flags", first, t_max) & TERMINATED != 0, replay.xp.float32)
        return {"returns": n_step_returns(ends, replay.discounts(first, t_max, self.discount), bootstraps, length)}

    def head(self, spec: Spec) -> Any:
        """A layer for the logit of the prediction, `[B, T, 1]`."""
        from keras import layers

        return layers.Dense(1, name="tp")

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Mean binary cross-entropy between the target and the prediction, over steps."""
        from keras import ops

        from gunreal.learning.losses import masked_mean

        error = ops.binary_crossentropy(batch["returns"], outputs[:, :, 0], from_logits=True)
        return masked_mean(error, batch["mask"])
