from __future__ import annotations

import numpy as np
import pytest
from learners import make_batch

from gunreal.learning.padding import pad_batch, padded_size


@pytest.mark.parametrize(
    ("count", "most", "size"),
    [(1, 0, 1), (5, 0, 8), (8, 0, 8), (5, 6, 6), (6, 6, 6), (7, 6, 8), (3, 256, 4), (300, 256, 512)],
)
def test_sizes(count, most, size):
    assert padded_size(count, most) == size


def test_padding_keeps_every_sequence_in_its_place():
    batch = make_batch(count=3)
    padded = pad_batch(batch, {"base": 4, "fit": 3})
    assert padded["observations"].shape[0] == 4 * 7 and padded["base"]["mask"].shape == (4, 4)
    np.testing.assert_array_equal(padded["observations"][:12], batch["observations"][:12])
    np.testing.assert_array_equal(padded["observations"][16:25], batch["observations"][12:])
    np.testing.assert_array_equal(padded["fit"]["target"][:3], batch["fit"]["target"])
    assert not padded["base"]["mask"][3].any() and not padded["fit"]["mask"][3].any()
    assert pad_batch(make_batch(count=4), {"base": 4, "fit": 3})["observations"].shape[0] == 4 * 7
