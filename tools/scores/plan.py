"""The runs of a comparison: every system on every game with every seed."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import trainings
from experiments.jobs import Job, is_finished
from experiments.trainings import Training
from measuring.gauge import Failed
from peers import contestants
from peers.contestants import Contestant

from gunreal.config import folders
from gunreal.config.flags import from_flags
from gunreal.config.schema import ConfigError

_JOB = "job.json"
_LIMITS = ("score", "minutes")  # of a `Job`


@dataclasses.dataclass(frozen=True)
class PeerJob(Job):
    """A run of another system. It can't be resumed, so an unfinished run starts again.

    Attributes:
      contestant: the system.
      about: game, steps and seed of the run, and settings and versions of the system. They are saved with the run,
        and so are its limits.
      folder: the folder of runs.
      score, minutes: see `Job`.
    """

    contestant: Contestant
    about: Mapping[str, Any]
    folder: Path
    score: float = math.inf
    minutes: float = math.inf

    @property
    def name(self) -> str:
        """The name of the run."""
        return run_name(self.contestant.label, self.about["game"], self.about["seed"])

    @property
    def path(self) -> Path:
        """The folder of the run, which need not exist."""
        return self.folder / self.name

    @property
    def steps(self) -> int:
        """The budget in agent steps."""
        return self.about["steps"]

    def command(self) -> list[str]:
        """Returns the command that starts the training."""
        words = [word for key in ("game", "steps", "seed") for word in (f"--{key}", str(self.about[key]))]
        return [*self.contestant.command(), *words, "--out", str(self.path.resolve())]

    def prepare(self) -> None:
        """Creates the folder of the run and saves `about` and the limits there."""
        self.path.mkdir(parents=True, exist_ok=True)
        limits = {name: getattr(self, name) for name in _LIMITS if math.isfinite(getattr(self, name))}
        (self.path / _JOB).write_text(json.dumps({**self.about, "limits": limits}, indent=1) + "\n")

    def check(self) -> None:
        """Raises ConfigError if the folder contains a different run, or one that ended at lower limits.

        Such a run would start again, because other systems can't continue.
        """
        if not self.path.exists():
            return
        there = _saved(self.path)
        for key in ("game", "steps", "seed", "settings"):
            if there.get(key) != self.about[key]:
                raise ConfigError(
                    f"{self.path} has {key} {there.get(key)!r}, not {self.about[key]!r}; choose another --logdir"
                )
        limits = there.get("limits", {})
        if is_finished(self.lines(), **limits) and not self.finished():
            words = " ".join(f"--{name} {value:g}" for name, value in limits.items())
            raise ConfigError(f"{self.path} has ended at {words}; use these limits again or choose another --logdir")


def _saved(path: Path) -> dict[str, Any]:
    try:
        found = json.loads((path / _JOB).read_text())
        if isinstance(found, dict):
            return found
        reason = f"no object in {_JOB}"
    except (OSError, ValueError) as error:
        reason = str(error)
    raise ConfigError(f"{path} is not a run of another system ({reason}); choose another --logdir")


def run_name(label: str, game: str, seed: int | str) -> str:
    """Returns the name of a run. Characters of the label other than letters, digits and dashes become underscores."""
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
    minutes: float = math.inf,
    known: Mapping[str, Mapping[str, Any]],
) -> list[Job]:
    """Returns the runs, ordered by seed, game and system.

    Args:
      systems: the systems.
      games: names of the games.
      steps: length of a run in agent steps.
      seeds: number of seeds.
      logdir: the folder of runs.
      our_steps: length of gunreal's runs, or 0 for `steps`.
      score: mean score that ends a run early.
      minutes: longest training time of a run.
      known: result of `contestants.describe` for each other system, by label.
    """
    return [
        _ours(system, game, our_steps or steps, seed, logdir, score, minutes)
        if system.peer.is_ours
        else PeerJob(
            system, {"game": game, "steps": steps, "seed": seed, **known[system.label]}, logdir, score, minutes
        )
        for seed in range(1, seeds + 1)
        for game in games
        for system in systems
    ]


def _ours(system: Contestant, game: str, steps: int, seed: int, logdir: Path, score: float, minutes: float) -> Training:
    config, extras = from_flags(["train", "--env", f"ALE/{game}-v5", *system.settings["flags"]])
    for field in ("env", "steps", "seed", "name", "logdir"):
        if field in extras.given and (field, extras.given[field]) != ("env", f"ALE/{game}-v5"):
            raise ConfigError(f"--{field} is set by this command; leave it out after --")
    name = run_name(system.label, game, seed)
    seconds = extras.given.get("metrics_seconds", 5.0)
    own = {"steps": steps, "seed": seed, "name": name, "logdir": str(logdir), "metrics_seconds": seconds}
    config = trainings.with_backend(dataclasses.replace(config, **own), extras.given)
    return Training(f"{game}-{system.label}", config, score=score, minutes=minutes)


def describe(systems: Sequence[Contestant]) -> dict[str, dict[str, Any]]:
    """Returns versions and settings of the other systems, by label.

    Raises:
      ConfigError: a system can't be imported. The message says how to install it.
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
    """Raises ConfigError if a run can't be trained or its folder contains a different one."""
    trainings.check([job for job in jobs if isinstance(job, Training)])
    for job in jobs:
        if isinstance(job, PeerJob):
            job.check()


def check_steps(jobs: Sequence[Job]) -> None:
    """Raises ConfigError if a run has begun with another number of steps. Nothing needs to be installed for this."""
    for job in jobs:
        is_ours = isinstance(job, Training)
        file = job.path / (folders.CONFIG if is_ours else _JOB)
        if not file.is_file():
            continue
        there = (tomllib.loads(file.read_text()) if is_ours else _saved(job.path)).get("steps")
        if there != job.steps:
            raise ConfigError(f"{job.path} has steps {there}, not {job.steps}; choose another --steps or --logdir")
