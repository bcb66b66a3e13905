"""The base of tasks that predict later steps of a sequence from the actions taken in between."""

from __future__ import annotations

import dataclasses
from typing import Any

from gunreal.config.plugins import option
from gunreal.experience.replay import Replay
from gunreal.experience.sequences import Sequences, pad
from gunreal.experience.spec import Spec
from gunreal.learning.task import AuxiliaryTask


@dataclasses.dataclass(frozen=True)
class FuturePrediction(AuxiliaryTask):
    """Uniformly sampled sequences and their actions.

    Options:
      steps: maximum number of steps ahead to predict.
      units: size of the compared embeddings.
    """

    steps: int = 8
    units: int = option(128, low=1)

    def check(self, spec: Spec) -> None:
        if spec.t_max < 2:
            raise ValueError(f"{self.name} predicts later steps of a sequence: raise t_max to 2 or more")
        if not 1 <= self.steps < spec.t_max:
            raise ValueError(
                f"{self.name}.steps is {self.steps}: choose a value from 1 to {spec.t_max - 1}, below t_max"
            )

    def targets(self, replay: Replay, sequences: Sequences, bootstraps: Any) -> dict[str, Any]:
        """The actions to condition the predictions on: "action" int32 `[N, t_max]`."""
        return {"action": pad(replay.get("action", sequences.first, replay.spec.t_max), sequences.length)}

    def show(self, outputs: Any, length: int) -> dict[str, Any]:
        """Nothing but the loss, because embeddings mean nothing by themselves."""
        return {}
