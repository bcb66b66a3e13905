"""A run that somebody wants trained by a process of its own, and how far it is, as its `metrics.jsonl` tells."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gunreal.records import metrics

EPISODES = 100  # before so many have ended, a mean score is of few
Lines = Sequence[dict[str, Any]]


class Job:
    """A run that is wanted. Subclasses say where it is and what trains it.

    Attributes:
      minutes: training time that ends it where it has not taken its steps by then.
      score: mean score of the last 100 episodes that ends it likewise.
    """

    minutes: float = math.inf
    score: float = math.inf

    @property
    def name(self) -> str:
        """The run's name."""
        raise NotImplementedError

    @property
    def path(self) -> Path:
        """The run's folder, there or not."""
        raise NotImplementedError

    @property
    def steps(self) -> int:
        """The budget in agent steps."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """What trains it, from where it is."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Writes what its command needs."""
        raise NotImplementedError

    def resumable(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return False

    def lines(self) -> list[dict[str, Any]]:
        """Its metrics so far."""
        with contextlib.suppress(OSError):
            return metrics.read(self.path / metrics.FILE)
        return []

    def step(self) -> int:
        """Agent steps so far."""
        return next((line["step"] for line in reversed(self.lines())), 0)

    def seconds(self) -> float:
        """Time that it has trained for."""
        return next((line["seconds"] for line in reversed(self.lines())), 0.0)

    def finished(self) -> bool:
        """Whether it has ended in order, for the reason that it was to end."""
        return is_finished(self.lines(), self.minutes, self.score)

    def over(self) -> bool:
        """Whether it has had its time or its score, and is to be stopped."""
        lines = self.lines()
        return bool(lines) and (lines[-1]["seconds"] >= 60 * self.minutes or reaches(lines, self.score))


def stopped_by(lines: Lines) -> str | None:
    """Why a run has ended: "steps" when it has finished; None where it has not ended in order."""
    return lines[-1].get("stopped_by") if lines else None


def first_reach(lines: Lines, score: float, key: str) -> float | None:
    """`key` of the first line whose mean score, of a hundred episodes, is at least `score`, or None."""
    counted = (line for line in lines if line["score_mean"] is not None and line["episodes"] >= EPISODES)
    return next((line[key] for line in counted if line["score_mean"] >= score), None)


def reaches(lines: Lines, score: float) -> bool:
    """Whether a run has reached a score; no run reaches infinity."""
    return math.isfinite(score) and first_reach(lines, score, "step") is not None


def is_finished(lines: Lines, minutes: float = math.inf, score: float = math.inf) -> bool:
    """Whether a run has taken its budget of agent steps, or ended in order after so many minutes or at such a score."""
    ended = stopped_by(lines)
    if ended in (None, "error"):
        return False
    return ended == "steps" or lines[-1]["seconds"] >= 60 * minutes or reaches(lines, score)
