"""How long agents wait for predictions: every group counts in its segment's shared memory, the server reads there.

A wait lasts from a group's request to the moment at which its process takes the answer, so the time that the other
group's step takes meanwhile is part of it. GA3C's agents wait 108 ms for each action, of which the network takes 10 %
(Babaeizadeh et al. 2017, section 5.1, "Significant latency").
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

BINS = 256  # from 1 us to 71 minutes
_PER_OCTAVE = 8  # bins to a doubling: a bin is 9 % wide
_FIRST = 1e-6  # seconds, the lower edge of the first bin


class Waited(NamedTuple):
    """Waits that have ended.

    Attributes:
      seconds: float64 `[groups]`, their sum.
      counts: int64 `[groups, BINS]`, how many there were of each length.
    """

    seconds: np.ndarray
    counts: np.ndarray

    def mean_ms(self) -> float | None:
        """Mean wait in milliseconds; None without any."""
        count = int(self.counts.sum())
        return 1e3 * float(self.seconds.sum()) / count if count else None

    def percentile_ms(self, percent: float) -> float | None:
        """The wait in milliseconds that `percent` % of the waits don't exceed, to within 5 %; None without any."""
        counts = self.counts.sum(axis=0)
        if not counts.any():
            return None
        place = int(np.searchsorted(np.cumsum(counts), max(1, math.ceil(percent / 100 * counts.sum()))))
        return 1e3 * _FIRST * 2 ** ((place + 0.5) / _PER_OCTAVE)


class Waits:
    """The waits of a segment's groups: begun and ended by its worker, read by the server.

    Args:
      waited: the arrays in the segment.
    """

    def __init__(self, waited: Waited):
        self._waited = waited
        self._since: dict[int, float] = {}

    def begin(self, group: int) -> None:
        """A group has asked for its actions."""
        self._since[group] = time.monotonic()

    def end(self, group: int) -> None:
        """Its answer was taken. What another process asked for, before a serial run was resumed, is not counted."""
        if (since := self._since.pop(group, None)) is None:
            return
        seconds = time.monotonic() - since
        place = int(_PER_OCTAVE * math.log2(max(seconds, _FIRST) / _FIRST))
        self._waited.seconds[group] += seconds
        self._waited.counts[group, min(place, BINS - 1)] += 1

    def total(self) -> Waited:
        """All waits so far, as copies. A wait that is just being counted may be missing in one of them."""
        return Waited(*(array.copy() for array in self._waited))


class Reader:
    """Tells what was waited since it last looked, whatever processes have come and gone meanwhile."""

    def __init__(self) -> None:
        self._last: dict[int, Waited] = {}

    def read(self, totals: Mapping[int, Waited]) -> Waited:
        """The waits since the last call, given `Waits.total` of the processes that are there now, by their numbers."""
        last, self._last = self._last, dict(totals)
        new = [
            Waited(*(a - b for a, b in zip(now, last[process], strict=True))) if process in last else now
            for process, now in self._last.items()
        ]
        if not new:
            return Waited(np.zeros(0), np.zeros((0, BINS), np.int64))
        return Waited(*(np.concatenate(arrays) for arrays in zip(*new, strict=True)))
