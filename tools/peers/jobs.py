"""The runs of a comparison of learning: every system with every seed."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measuring.gauge import Failed

from gunreal.config import flags
from gunreal.config.schema import ConfigError
from gunreal.config.sweeps import Planned, Sweep
from gunreal.runtime.jobs import Command, Job
from gunreal.sweep import Training
from gunreal.sweep import check as check_trainings
from peers import contestants
from peers.contestants import Contestant

_JOB = "job.json"


class PeerJob(Job):
    """A run of another system. It can't be resumed, so an unfinished run starts again.

    Attributes:
      contestant: the system.
      about: game, steps and seed of the run, and settings and versions of the system. They are saved with the run,
        and so are its limits.
    """

    def __init__(self, contestant: Contestant, about: Mapping[str, Any], folder: Path, **limits: float):
        self.contestant, self.about = contestant, about
        super().__init__(folder / run_name(contestant.label, about["game"], about["seed"]), about["steps"], **limits)
        self._limits = {name: value for name, value in limits.items() if math.isfinite(value)}

    def next(self) -> Command | None:
        """The command that starts the training."""
        if self.trained():
            return None
        words = [word for key in ("game", "steps", "seed") for word in (f"--{key}", str(self.about[key]))]
        return Command([*self.contestant.command(), *words, "--out", str(self.path.resolve())])

    def prepare(self) -> None:
        """Creates the folder of the run anew and saves `about` and the limits there."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        (self.path / _JOB).write_text(json.dumps({**self.about, "limits": self._limits}, indent=1) + "\n")

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
        if Job(self.path, self.steps, **limits).trained() and not self.trained():
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
    game: str,
    *,
    steps: int,
    our_steps: int,
    seeds: int,
    logdir: Path,
    known: Mapping[str, Mapping[str, Any]],
    score: float = math.inf,
    minutes: float = math.inf,
) -> list[Job]:
    """Returns the runs, ordered by seed and system.

    Args:
      systems: the systems.
      game: name of the game.
      steps: length of a run of another system in agent steps.
      our_steps: length of gunreal's runs.
      seeds: number of seeds.
      logdir: the folder of runs.
      known: result of `contestants.describe` for each other system, by label.
      score: mean score that ends a run early.
      minutes: longest training time of a run.
    """
    limits = {"score": score, "minutes": minutes}
    return [
        _ours(system, game, our_steps, seed, logdir, limits)
        if system.peer.is_ours
        else PeerJob(system, {"game": game, "steps": steps, "seed": seed, **known[system.label]}, logdir, **limits)
        for seed in range(1, seeds + 1)
        for system in systems
    ]


def _ours(system: Contestant, game: str, steps: int, seed: int, logdir: Path, limits: Mapping[str, float]) -> Training:
    given = flags.settings(["train", *system.settings["flags"]])
    for field in {"env", "steps", "seed", "name", "logdir"} & given.keys():
        raise ConfigError(f"--{field} is set by this command; leave it out after --")
    own = {"env": f"ALE/{game}-v5", "steps": steps, "seed": seed, "logdir": str(logdir)}
    own["name"] = run_name(system.label, game, seed)
    return Training(Planned(system.label, {"metrics_seconds": 5.0} | given | own), Sweep(logdir, [], **limits))


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
    check_trainings([job for job in jobs if isinstance(job, Training)], lambda _: None)
    for job in jobs:
        if isinstance(job, PeerJob):
            job.check()
