"""Arrays in one vector, and the vector in slices: what travels between machines."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

Shapes = Mapping[str, tuple[int, ...]]


class Flat:
    """The order of named float32 arrays in a vector.

    Args:
      shapes: the shapes by name, in order.

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

    def slots(self, state: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The vectors of an optimizer's state, one for each kind of average.

        Args:
          state: one array for each kind and each of the named arrays, in any order of Keras.
        """
        kinds = len(state) // max(1, len(self._shapes))
        return [self.join(state[i] for i in self._order(state)[kind]) for kind in range(kinds)]

    def unslotted(self, vectors: Sequence[np.ndarray], like: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The state that `slots` took apart, in the order of `like`."""
        found: list[np.ndarray] = [np.zeros(0)] * len(like)
        for vector, places in zip(vectors, self._order(like), strict=True):
            for array, place in zip(self.split(vector).values(), places, strict=True):
                found[place] = array
        return found

    def _order(self, state: Sequence[np.ndarray]) -> list[list[int]]:
        """The places of each kind. Keras keeps all averages of one weight together, or all weights of one average."""
        count = len(self._shapes)
        kinds = len(state) // max(1, count)
        together = [list(range(kind, len(state), kinds)) for kind in range(kinds)]
        apart = [list(range(kind * count, (kind + 1) * count)) for kind in range(kinds)]
        shapes = [tuple(shape) for shape in self._shapes.values()]
        fits = all([tuple(state[i].shape) for i in places] == shapes for places in together)
        return together if fits else apart


def bounds(size: int, parts: int) -> list[slice]:
    """`parts` slices of nearly equal length that divide a vector of length `size`."""
    return [slice(size * part // parts, size * (part + 1) // parts) for part in range(parts)]
