"""A run to be trained in a process of its own, with its progress according to its `metrics.jsonl`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gunreal.config.schema import ConfigError
from gunreal.records import metrics

EPISODES = 100  # episodes that a mean score needs to count
Lines = Sequence[dict[str, Any]]


class Job:
    """A run to be trained. Subclasses define its folder and the command that trains it.

    Attributes:
      minutes: longest training time; the run ends earlier if it has taken all its steps.
      score: mean score of the last 100 episodes at which the run ends early.
    """

    minutes: float = math.inf
    score: float = math.inf

    @property
    def name(self) -> str:
        """The name of the run."""
        raise NotImplementedError

    @property
    def path(self) -> Path:
        """The folder of the run, which need not exist."""
        raise NotImplementedError

    @property
    def steps(self) -> int:
        """The budget in agent steps."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """Returns the command that starts or resumes the training."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Writes the files that the command needs."""
        raise NotImplementedError

    def resumable(self) -> bool:
        """Whether the run has a checkpoint to continue from."""
        return False

    def lines(self) -> list[dict[str, Any]]:
        """Returns the lines of metrics so far.

        Raises:
          ConfigError: the file is damaged.
        """
        path = self.path / metrics.FILE
        try:
            return metrics.read(path)
        except OSError:
            return []
        except ValueError as error:
            raise ConfigError(f"{path} is damaged: {error}; remove the run or choose another --logdir") from error

    def step(self) -> int:
        """Returns the number of agent steps so far."""
        return next((line["step"] for line in reversed(self.lines())), 0)

    def seconds(self) -> float:
        """Returns the training time so far."""
        return next((line["seconds"] for line in reversed(self.lines())), 0.0)

    def finished(self) -> bool:
        """Whether the run has ended because it reached its steps, its time limit or its score."""
        return is_finished(self.lines(), self.minutes, self.score)

    def over(self) -> bool:
        """Whether the run has reached its time limit or its score and should be stopped."""
        lines = self.lines()
        return bool(lines) and (lines[-1]["seconds"] >= 60 * self.minutes or reaches(lines, self.score))


def stopped_by(lines: Lines) -> str | None:
    """Returns why a run ended, such as "steps" at the end of its budget, or None if it was cut off."""
    return lines[-1].get("stopped_by") if lines else None


def first_reach(lines: Lines, score: float, key: str) -> float | None:
    """Returns `key` of the first line whose mean score over 100 episodes is at least `score`, or None."""
    counted = (line for line in lines if line["score_mean"] is not None and line["episodes"] >= EPISODES)
    return next((line[key] for line in counted if line["score_mean"] >= score), None)


def reaches(lines: Lines, score: float) -> bool:
    """Whether a run has reached a score. An infinite score is never reached."""
    return math.isfinite(score) and first_reach(lines, score, "step") is not None


def is_finished(lines: Lines, minutes: float = math.inf, score: float = math.inf) -> bool:
    """Whether a run has ended properly, at the end of its steps, at its time limit or at its score."""
    ended = stopped_by(lines)
    if ended in (None, "error"):
        return False
    return ended == "steps" or lines[-1]["seconds"] >= 60 * minutes or reaches(lines, score)
