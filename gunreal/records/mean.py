"""A mean of values, for metrics."""

from __future__ import annotations

import math


class Mean:
    """A mean of values that ignores non-finite ones."""

    def __init__(self) -> None:
        self._sum, self._count = 0.0, 0

    def add(self, total: float, count: int = 1) -> None:
        """Adds `count` values by their sum."""
        if math.isfinite(total):
            self._sum += total
            self._count += count

    def merge(self, other: Mean) -> None:
        """Adds the values of another mean."""
        self._sum += other._sum
        self._count += other._count

    def value(self) -> float | None:
        """The mean, or None without values."""
        return self._sum / self._count if self._count else None
