"""The runs that a comparison of systems wants: every system on every game with every seed."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import trainings
from experiments.jobs import Job
from experiments.trainings import Training
from measuring.gauge import Failed
from peers import contestants
from peers.contestants import Contestant

from gunreal.config.flags import from_flags
from gunreal.config.schema import ConfigError

_JOB = "job.json"


@dataclasses.dataclass(frozen=True)
class PeerJob(Job):
    """A run of another system. It can't be resumed: an unfinished one starts again.

    Attributes:
      contestant: the system.
      about: the run's game, steps, seed, and the system's settings and versions; kept beside its curve.
      folder: the folder of runs.
    """

    contestant: Contestant
    about: Mapping[str, Any]
    folder: Path
    score: float = math.inf

    @property
    def name(self) -> str:
        """The run's name."""
        return run_name(self.contestant.label, self.about["game"], self.about["seed"])

    @property
    def path(self) -> Path:
        """The run's folder, there or not."""
        return self.folder / self.name

    @property
    def steps(self) -> int:
        """The budget in agent steps."""
        return self.about["steps"]

    def command(self) -> list[str]:
        """What trains it, from the start."""
        words = [word for key in ("game", "steps", "seed") for word in (f"--{key}", str(self.about[key]))]
        return [*self.contestant.command(), *words, "--out", str(self.path.resolve())]

    def prepare(self) -> None:
        """Makes its folder and notes there what is trained."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / _JOB).write_text(json.dumps(self.about, indent=1) + "\n")

    def check(self) -> None:
        """Raises ConfigError where its folder has a finished run of something else."""
        if not self.finished():
            return
        try:
            there = json.loads((self.path / _JOB).read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.path} is not a run of a peer ({error}); choose another --logdir") from error
        for key in ("game", "steps", "seed", "settings"):
            if there.get(key) != self.about[key]:
                raise ConfigError(
                    f"{self.path} has {key} {there.get(key)!r}, not {self.about[key]!r}; choose another --logdir"
                )


def run_name(label: str, game: str, seed: int | str) -> str:
    """The name of a run: what is not a letter, digit or dash in a label becomes an underscore."""
    return f"{game}-{re.sub(r'[^A-Za-z0-9-]+', '_', label)}-s{seed}"


def plan(
    systems: Sequence[Contestant],
    games: Sequence[str],
    *,
    steps: int,
    seeds: int,
    logdir: Path,
    our_steps: int = 0,
    score: float = math.inf,
    known: Mapping[str, Mapping[str, Any]],
) -> list[Job]:
    """The runs, all systems and games of the first seed first.

    Args:
      steps: budget of a run in agent steps.
      seeds: 1 to this.
      our_steps: gunreal's budget, where that is another.
      score: mean score that ends a run before that.
      known: by label, what `contestants.describe` says of the other systems.
    """
    return [
        _ours(system, game, our_steps or steps, seed, logdir, score)
        if system.peer.is_ours
        else PeerJob(system, {"game": game, "steps": steps, "seed": seed, **known[system.label]}, logdir, score)
        for seed in range(1, seeds + 1)
        for game in games
        for system in systems
    ]


def _ours(system: Contestant, game: str, steps: int, seed: int, logdir: Path, score: float) -> Training:
    config, extras = from_flags(["train", "--env", f"ALE/{game}-v5", *system.settings["flags"]])
    for field in ("env", "steps", "seed", "name", "logdir"):
        if field in extras.given and (field, extras.given[field]) != ("env", f"ALE/{game}-v5"):
            raise ConfigError(f"--{field} is chosen by the comparison; leave it out after --")
    name = run_name(system.label, game, seed)
    config = dataclasses.replace(config, steps=steps, seed=seed, name=name, logdir=str(logdir), metrics_seconds=5.0)
    return Training(f"{game}-{system.label}", config, score=score)


def describe(systems: Sequence[Contestant]) -> dict[str, dict[str, Any]]:
    """Versions and settings of the other systems, by label.

    Raises:
      ConfigError: one can't be imported; the message says how to get it.
    """
    found = {}
    for system in systems:
        if system.peer.is_ours:
            continue
        try:
            found[system.label] = contestants.describe(system, "learn")
        except Failed as error:
            raise ConfigError(f"{system.label} can't be trained: {contestants.absence(system, error)}") from None
    return found


def check(jobs: Sequence[Job]) -> None:
    """Raises ConfigError where a run can't be trained, or its folder has another one."""
    trainings.check([job for job in jobs if isinstance(job, Training)])
    for job in jobs:
        if isinstance(job, PeerJob):
            job.check()
