"""Statistics of the time that agents wait for predictions.

Each group counts its waits in the shared memory of its segment, where the server reads them. A wait lasts from a
group's request until its process takes the answer. It includes the time in which the other group steps. In GA3C,
agents wait 108 ms for each action, and the network accounts for 10 % of that (Babaeizadeh et al. 2017, section 5.1,
"Significant latency").
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

BINS = 256  # from 1 us to 71 minutes
_PER_OCTAVE = 8  # bins per doubling; a bin is 9 % wide
_FIRST = 1e-6  # lower edge of the first bin, in seconds


class Waited(NamedTuple):
    """Completed waits.

    Attributes:
      seconds: total duration, float64 `[groups]`.
      counts: histogram of the durations, int64 `[groups, BINS]`.
    """

    seconds: np.ndarray
    counts: np.ndarray

    def mean_ms(self) -> float | None:
        """Mean wait in milliseconds, or None if there are no waits."""
        count = int(self.counts.sum())
        return 1e3 * float(self.seconds.sum()) / count if count else None

    def percentile_ms(self, percent: float) -> float | None:
        """The given percentile of the waits in milliseconds, to within 5 %, or None if there are no waits."""
        counts = self.counts.sum(axis=0)
        if not counts.any():
            return None
        place = int(np.searchsorted(np.cumsum(counts), max(1, math.ceil(percent / 100 * counts.sum()))))
        return 1e3 * _FIRST * 2 ** ((place + 0.5) / _PER_OCTAVE)


class Waits:
    """The waits of the groups of a segment. Its worker records them and the server reads them."""

    def __init__(self, waited: Waited):
        self._waited = waited
        self._since: dict[int, float] = {}

    def begin(self, group: int) -> None:
        """Records that a group has requested its actions."""
        self._since[group] = time.monotonic()

    def end(self, group: int) -> None:
        """Records that the answer was taken. Requests made before a serial run was resumed are not counted."""
        if (since := self._since.pop(group, None)) is None:
            return
        seconds = time.monotonic() - since
        place = int(_PER_OCTAVE * math.log2(max(seconds, _FIRST) / _FIRST))
        self._waited.seconds[group] += seconds
        self._waited.counts[group, min(place, BINS - 1)] += 1

    def total(self) -> Waited:
        """Copies of all waits so far. A wait that is being counted may be missing in one of the arrays."""
        return Waited(*(array.copy() for array in self._waited))


class Reader:
    """Reports the waits since its last call, across starts and ends of processes."""

    def __init__(self) -> None:
        self._last: dict[int, Waited] = {}

    def read(self, totals: Mapping[int, Waited]) -> Waited:
        """The waits since the last call, given `Waits.total` of the current processes by process number."""
        last, self._last = self._last, dict(totals)
        new = [
            Waited(*(a - b for a, b in zip(now, last[process], strict=True))) if process in last else now
            for process, now in self._last.items()
        ]
        if not new:
            return Waited(np.zeros(0), np.zeros((0, BINS), np.int64))
        return Waited(*(np.concatenate(arrays) for arrays in zip(*new, strict=True)))
