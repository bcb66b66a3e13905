"""Reference scores of Atari games, and the regression of Atari-5.

The reference scores are those of random play and of a human, from Mnih et al. (2015) and Wang et al. (2016). The
regression is from Aitchison et al. (2023), "Atari-5: Distilling the Arcade Learning Environment down to Five Games".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from gunreal.config.schema import ConfigError, close_match


class Game(NamedTuple):
    """The reference scores of a game: random play and a human."""

    random: float
    human: float


GAMES = {
    "BattleZone": Game(2360.0, 37187.5),
    "DoubleDunk": Game(-18.55, -16.4),
    "NameThisGame": Game(2292.35, 8049.0),
    "Phoenix": Game(761.4, 7242.6),
    "Qbert": Game(163.88, 13455.0),
    "Breakout": Game(1.72, 30.5),
    "SpaceInvaders": Game(148.03, 1668.7),
    "Seaquest": Game(68.4, 42054.7),
    "Boxing": Game(0.05, 12.1),
    "Pong": Game(-20.71, 14.6),
}
DEFAULT = tuple(name for name in GAMES if name != "Pong")
ATARI_5 = {"BattleZone": 0.3820, "DoubleDunk": 0.0679, "NameThisGame": 0.3108, "Phoenix": 0.1241, "Qbert": 0.0805}


def parse(text: str) -> tuple[str, ...]:
    """Parses comma-separated names of games. An empty string stands for `DEFAULT`.

    Raises:
      ConfigError: a game is unknown or listed twice.
    """
    chosen = tuple(text.split(",")) if text else DEFAULT
    for name in chosen:
        if name not in GAMES:
            raise ConfigError(f"unknown game {name!r}{close_match(name, GAMES) or '; available: ' + ', '.join(GAMES)}")
        if chosen.count(name) > 1:
            raise ConfigError(f"{name} is listed twice; remove one from --games")
    return chosen


def human_normalized(name: str, score: float) -> float:
    """Normalizes a raw score to 0 for random play and 1 for a human."""
    game = GAMES[name]
    return (score - game.random) / (game.human - game.random)


def predicted_median(normalized: Mapping[str, float]) -> float:
    """Predicts the median human-normalized score over 57 games with the regression of Atari-5.

    Args:
      normalized: human-normalized scores (1 for a human) of the five games. Other games are ignored.
    """
    percent = {name: 100 * max(0.0, normalized[name]) for name in ATARI_5}
    exponent = sum(weight * math.log10(1 + percent[name]) for name, weight in ATARI_5.items())
    return (10**exponent - 1) / 100
