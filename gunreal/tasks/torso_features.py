"""The features of the torso as the prediction of a task, for `gunreal.Run.features`. It is not a task to train with."""

from __future__ import annotations

import dataclasses
from typing import Any

from gunreal.experience.spec import Spec
from gunreal.learning.task import AuxiliaryTask


@dataclasses.dataclass(frozen=True)
class TorsoFeatures(AuxiliaryTask):
    """Has no layers. Its bootstrap is the features themselves."""

    name = "features"

    def head(self, spec: Spec) -> Any:
        from keras import layers

        return layers.Identity()

    def bootstrap(self, outputs: Any) -> Any:
        return outputs[:, 0]
