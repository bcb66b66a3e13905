"""Reference scores of Atari games: random play and a human (Mnih et al. 2015; Wang et al. 2016, no-op starts)."""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class Reference(NamedTuple):
    """The mean scores of random play and of a human."""

    random: float
    human: float

    def normalized(self, score: Any) -> Any:
        """Scales a raw score, or an array of them, to 0 for random play and 1 for a human."""
        return (score - self.random) / (self.human - self.random)


GAMES = {
    "Asteroids": Reference(719.1, 47388.7),
    "BattleZone": Reference(2360.0, 37187.5),
    "BeamRider": Reference(363.9, 16926.5),
    "Boxing": Reference(0.05, 12.1),
    "Breakout": Reference(1.72, 30.5),
    "DoubleDunk": Reference(-18.55, -16.4),
    "Enduro": Reference(0.0, 860.5),
    "NameThisGame": Reference(2292.35, 8049.0),
    "Phoenix": Reference(761.4, 7242.6),
    "Pong": Reference(-20.71, 14.6),
    "Qbert": Reference(163.88, 13455.0),
    "RoadRunner": Reference(11.5, 7845.0),
    "Seaquest": Reference(68.4, 42054.7),
    "SpaceInvaders": Reference(148.03, 1668.7),
}


def reference(env: str) -> Reference | None:
    """The reference scores of an environment, or None."""
    match = re.fullmatch(r"ALE/(\w+)-v\d+", env)
    return GAMES.get(match[1]) if match else None
