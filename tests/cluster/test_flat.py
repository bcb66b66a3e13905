from __future__ import annotations

import numpy as np
import pytest

from gunreal.cluster.flat import Flat, bounds

FLAT = Flat({"a": (2, 3), "b": (), "c": (2,)})
ARRAYS = [np.arange(6.0).reshape(2, 3), np.array(6.0), np.array([7.0, 8.0])]


def test_a_vector_and_back():
    vector = FLAT.join(ARRAYS)
    assert vector.dtype == np.float32 and vector.tolist() == list(range(9)) and FLAT.size == 9
    for array, found in zip(ARRAYS, FLAT.split(vector).values(), strict=True):
        np.testing.assert_array_equal(found, array)
    assert Flat({}).join([]).shape == (0,)


@pytest.mark.parametrize("together", [True, False])
def test_averages_in_both_orders_of_keras(together):
    """Adam's averages of one weight follow each other; those of other optimizers may not."""
    means, squares = ARRAYS, [x + 10 for x in ARRAYS]
    state = [x for pair in zip(means, squares, strict=True) for x in pair] if together else [*means, *squares]
    vectors = FLAT.slots(state)
    assert [vector.tolist() for vector in vectors] == [list(range(9)), list(range(10, 19))]
    for found, array in zip(FLAT.unslotted(vectors, state), state, strict=True):
        np.testing.assert_array_equal(found, array)


def test_an_optimizer_without_averages():
    assert FLAT.slots([]) == [] == FLAT.unslotted([], [])


def test_bounds_divide_a_vector():
    parts = bounds(10, 3)
    assert [list(range(10))[part] for part in parts] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    assert bounds(2, 1) == [slice(0, 2)]
