"""Arrays in one vector, and the vector in slices: what travels between machines."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import numpy as np

Shapes = Mapping[str, tuple[int, ...]]


class Flat:
    """The order of float32 arrays of these shapes, by name, in a vector.

    Attributes:
      size: length of the vector.
      places: the place of each array in the vector, by name.
    """

    def __init__(self, shapes: Shapes):
        self._shapes = dict(shapes)
        ends = itertools.accumulate((int(np.prod(shape)) for shape in shapes.values()), initial=0)
        places = (slice(start, stop) for start, stop in itertools.pairwise(ends))
        self.places = dict(zip(shapes, places, strict=True))
        self.size = max((place.stop for place in self.places.values()), default=0)

    def join(self, arrays: Iterable[np.ndarray]) -> np.ndarray:
        """The vector, float32 `[size]`, of all arrays in order."""
        flat = [np.asarray(array, np.float32).reshape(-1) for array in arrays]
        return np.concatenate(flat) if flat else np.zeros(0, np.float32)

    def split(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Views of the arrays in a vector `[size]`, by name."""
        return {name: vector[place].reshape(self._shapes[name]) for name, place in self.places.items()}


def bounds(size: int, parts: int) -> list[slice]:
    """`parts` slices of nearly equal length that divide a vector of length `size`."""
    return [slice(size * part // parts, size * (part + 1) // parts) for part in range(parts)]


def within(place: slice, part: slice) -> slice:
    """What a slice `part` of a vector has of a `place` in it, counted from its own start. It may be empty."""
    first, last = (min(max(end, part.start), part.stop) - part.start for end in (place.start, place.stop))
    return slice(first, last)
