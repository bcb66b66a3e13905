"""Trains gunreal for `compare_peers.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from peers.progress import Progress


def drive(progress: Progress, *, flags: Sequence[str] = ()) -> None:
    """Trains as `python -m gunreal.train` does, but without display and checkpoints.

    By default, each batch is used once, as in the other systems.
    """
    import dataclasses

    from measuring.measure import watched

    from gunreal.config.flags import from_flags

    class Reporter(NamedTuple):
        system: Any

        def tick(self, run: Any) -> None:
            if not progress.report(self.system.metrics.steps_trained):
                self.system.stop("steps")

    watched(dataclasses.replace(from_flags(["gunreal", "--objective=a3c", *flags])[0], steps=10**12), Reporter)
