from __future__ import annotations

import numpy as np

from gunreal.cluster.flat import Flat, bounds, within

FLAT = Flat({"a": (2, 3), "b": (), "c": (2,)})
ARRAYS = [np.arange(6.0).reshape(2, 3), np.array(6.0), np.array([7.0, 8.0])]


def test_a_vector_and_back():
    vector = FLAT.join(ARRAYS)
    assert vector.dtype == np.float32 and vector.tolist() == list(range(9)) and FLAT.size == 9
    for array, found in zip(ARRAYS, FLAT.split(vector).values(), strict=True):
        np.testing.assert_array_equal(found, array)
    assert Flat({}).join([]).shape == (0,)


def test_bounds_divide_a_vector():
    parts = bounds(10, 3)
    assert [list(range(10))[part] for part in parts] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    assert bounds(2, 1) == [slice(0, 2)]


def test_the_places_of_an_array_in_slices():
    place, parts = slice(2, 7), bounds(11, 3)
    found = [list(range(11))[part][within(place, part)] for part in parts]
    assert found == [[2], [3, 4, 5, 6], []]
