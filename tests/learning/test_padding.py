from __future__ import annotations

import pytest

from gunreal.learning.padding import padded_size


@pytest.mark.parametrize(
    ("count", "most", "size"),
    [(1, 0, 1), (5, 0, 8), (8, 0, 8), (5, 6, 6), (6, 6, 6), (7, 6, 8), (3, 256, 4), (300, 256, 512)],
)
def test_sizes(count, most, size):
    assert padded_size(count, most) == size
