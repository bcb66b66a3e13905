"""Human-normalized scores and Atari-5's regression, by hand."""

from __future__ import annotations

import pytest
from scores import games

from gunreal.config.schema import ConfigError


def test_human_normalized():
    assert games.human_normalized("Pong", -20.71) == 0 and games.human_normalized("Pong", 14.6) == 1
    assert games.human_normalized("Breakout", 16.11) == pytest.approx(0.5)
    assert games.human_normalized("DoubleDunk", -14.25) == pytest.approx(2)


def test_predicted_median():
    none = dict.fromkeys(games.ATARI_5, 0.0)
    assert games.predicted_median(none) == 0
    assert games.predicted_median(none | {"Phoenix": -3.0, "Pong": 5.0}) == 0  # worse than random counts as random
    human = dict.fromkeys(games.ATARI_5, 1.0)
    weights = 0.3820 + 0.0679 + 0.3108 + 0.1241 + 0.0805
    assert games.predicted_median(human) == pytest.approx((101**weights - 1) / 100)
    assert games.predicted_median(none | {"BattleZone": 0.99}) == pytest.approx((100**0.3820 - 1) / 100)  # 5.81 - 1


def test_parse():
    assert games.parse("") == games.DEFAULT and "Pong" not in games.DEFAULT
    assert games.parse("Pong,Qbert") == ("Pong", "Qbert")
    for text, message in (("Brekout", "did you mean Breakout"), ("Pong,Pong", "Pong is listed twice")):
        with pytest.raises(ConfigError, match=message):
            games.parse(text)
