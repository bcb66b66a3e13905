"""Checks of options. Which options each environment checks is in its own tests."""

from __future__ import annotations

import numpy as np
import pytest

from gunreal.config.schema import ConfigError
from gunreal.envs.options import check, check_share


@pytest.mark.parametrize("value", [5, 25, np.int64(7)])
def test_whole_numbers_in_the_range_are_allowed(value):
    check("rows", value, range(5, 26, 2))


@pytest.mark.parametrize("value", [3, 27, 6, 7.0, 7.5, "7", None, float("nan"), True])
def test_all_others_are_refused_with_the_range(value):
    with pytest.raises(ConfigError, match=f"^rows is {value!r}, but must be odd and 5 to 25$"):
        check("rows", value, range(5, 26, 2))
    for other in (-1, True):
        with pytest.raises(ConfigError, match=f"^rows is {other}, but must be 0 to 9$"):
            check("rows", other, range(10))


def test_shares_are_numbers_from_0_to_1():
    for value in (0, 1, 0.5, np.float32(0.5)):
        check_share("openings", value)
    for value in (-0.1, 2, float("nan"), "0.5", None):
        with pytest.raises(ConfigError, match=f"^openings is {value!r}, but must be 0 to 1$"):
            check_share("openings", value)
