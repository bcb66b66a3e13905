"""Recall: the smallest thing to learn from images. A light on the left or on the right says which action will pay."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np

from gunreal.envs.functional import Batched
from gunreal.envs.game import Game
from gunreal.experience.spec import RecordedField
from gunreal.tasks import AuxiliaryTask

PIXELS = 20


class Recall(Game):
    """Episodes of `wait + 1` steps, the last of which pays 1 for the action of the light's side and -1 otherwise.

    The light is in the first `shown` frames. If the last frame lacks it, an agent without memory is at chance, 0. With
    `told`, the side and the time are numbers beside the image.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (PIXELS, PIXELS, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    actions = ("left", "right")

    def __init__(self, wait: int = 2, shown: int = 100, told: bool = False):
        self.wait, self.shown, self.told = wait, shown, told
        if told:
            side, time = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(wait + 2)
            self.observation_space = gymnasium.spaces.Dict(
                {"image": self.observation_space, "side": side, "time": time}
            )
        lit = np.zeros((3, PIXELS, PIXELS, 1), np.uint8)  # left, right, neither
        lit[0, :, : PIXELS // 2] = lit[1, :, PIXELS // 2 :] = 255
        super().__init__({"starts": [0, 1], "lit": lit}, None)

    def start(self, place):
        return 0, place

    def advance(self, tables, state, action):
        time, side = state
        last = time == self.wait
        return (time + 1, side), last * (2.0 * (action == side) - 1), last, False

    def draw(self, tables, state):
        time, side = state
        image = tables["lit"][side + (time >= self.shown) * (2 - side)]
        return {"image": image, "side": side, "time": time} if self.told else image


def functional(**options: Any) -> Batched:
    """The same for device runs."""
    return Recall(**options).functional()


def flipped(side: Any) -> Any:
    """The other side."""
    return 1 - side


@dataclasses.dataclass(frozen=True)
class Sides(AuxiliaryTask):
    """Records the other side, and says how often it is other than the side in the vector."""

    name = "sides"

    def record(self, spec):
        return {"other": RecordedField("side", (), "uint8", flipped)}

    def targets(self, replay, sequences, bootstraps):
        other, vector = (replay.get(name, sequences.first, replay.spec.t_max) for name in ("other", "vector"))
        return {"agrees": replay.xp.astype(other == vector[..., 0], replay.xp.float32)}  # 1 for the left side

    def loss(self, outputs, batch):
        from gunreal.tasks import masked_mean

        agrees, mask = batch["agrees"], batch["mask"]
        shares = {"agrees": masked_mean(agrees, mask), "differs": masked_mean(1 - agrees, mask)}
        return masked_mean(outputs["value"] ** 2, mask), shares
