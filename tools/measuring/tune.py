"""`benchmark.py --tune`: a short search for the settings with which a machine trains on the most agent steps a second.

A climb along one setting at a time. The present settings race against the next lower and the next higher value: all are
measured in turn, the slowest leaves, the last two are measured again (successive halving), and the medians decide. A
rival has to be 3 % faster, as runs differ by about that much; one that is 10 % slower at first is not measured again.
Where one wins, the next value in the same direction is raced. It ends when no setting has a better neighbour. Then the
best settings race against those of the start, which are kept if that does not show a gain.

Stopped before that, it writes the best settings so far.

Settings count only if their policy lag is at most --lag, since lag costs learning, and if they fit into 95 % of the
memory with full replay rings. The training batch and the trainers are left as they are: they are about learning, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from gunreal.config.checks import check
from gunreal.config.schema import Config, ConfigError, per_process
from gunreal.runtime import scheduler
from gunreal.train import prepare
from measuring import measure

TUNED = ("agents", "agents_per_process", "predictors", "max_batch")
# What the climb goes along; "split" is the same number of agents in more and smaller processes.
MOVES = ("agents per process", "processes", "split", "predictors", "max_batch")
MARGIN = 0.03  # by which a rival has to be faster
HOPELESS = 0.1  # by which a rival is so much slower that one measurement is enough
MOST = 100  # trials of a climb: more means that it goes in circles
_UNUSED = ("logdir", "name", "seed", "steps")  # nothing that belongs to a machine's settings


class Trial(NamedTuple):
    """One measurement of some settings; `problem` says why they don't count, or is empty."""

    tps: float
    pps: float
    lag: float
    problem: str


class Settings:
    """A configuration with its trials.

    Attributes:
      config: its fields named in `TUNED` are what it is about.
    """

    def __init__(self, config: Config):
        self.config = config
        self.trials: list[Trial] = []

    def rank(self) -> tuple[bool, float]:
        """Larger is better: settings that count before others, then training rates; among others, the lowest lags."""
        counts = not any(trial.problem for trial in self.trials)
        if counts:
            return True, statistics.median(trial.tps for trial in self.trials)
        return False, -max(trial.lag for trial in self.trials)

    def beats(self, other: Settings, margin: float = MARGIN) -> bool:
        """Whether these are better, by the margin where both count."""
        mine, others = self.rank(), other.rank()
        return mine[1] > (1 + margin) * others[1] if mine[0] and others[0] else mine > others

    def __str__(self) -> str:
        config, each = self.config, per_process(self.config)
        agents = f"{config.agents // each} x {each} agents"
        return f"{agents}, predictors {config.predictors}, max_batch {config.max_batch}"


class Search:
    """The climb.

    Args:
      measured: makes a trial of a configuration.
      say: is told what is tried.

    Attributes:
      trials: how many there were.
      best: the settings that the climb is at, once a trial of them has succeeded.
    """

    def __init__(self, measured: Callable[[Config], Trial], say: Callable[[str], None]):
        self._measured, self._say = measured, say
        self.trials = 0
        self.best: Settings | None = None

    def climb(self, start: Config) -> Settings:
        """The best settings that are found from `start` on.

        Raises:
          MeasurementFailed: `start` can't be measured, or none of what was tried counts.
        """
        best, settled = Settings(start), 0
        self._try(best)
        if best.trials[0].tps == 0:
            raise measure.MeasurementFailed(best.trials[0].problem)
        self.best = best
        for move in itertools.cycle(MOVES):
            before, best = best, self._along(move, best)
            settled = settled + 1 if best is before else 1
            if settled == len(MOVES) or self.trials >= MOST:
                return self._confirmed(start, best)
        raise AssertionError("a cycle has no end")

    def _along(self, move: str, best: Settings) -> Settings:
        """The best settings along one of `MOVES`, from the present ones on; the same object if that is they."""
        rivals = {by: config for by in (-1, 1) if (config := neighbour(best.config, move, by))}
        while rivals:
            self._say(f"{move}:")
            winner = self.race(best, [Settings(config) for config in rivals.values()])
            if winner is best:
                break
            (direction,) = (by for by, config in rivals.items() if config is winner.config)
            self.best = best = winner
            onward = neighbour(best.config, move, direction)
            rivals = {direction: onward} if onward else {}
        return best

    def race(self, present: Settings, rivals: Sequence[Settings], repeats: int = 2) -> Settings:
        """The present settings, or the rival that is better by more than the margin."""
        for settings in (present, *rivals):
            settings.trials = []  # those of earlier races are of another minute of a machine that others use, too
        for settings in (present, *rivals):
            self._try(settings)
        rival = max(rivals, key=Settings.rank)
        for _ in range(repeats - 1):
            if present.beats(rival, HOPELESS):
                break
            for settings in (present, rival):
                self._try(settings)
        return rival if rival.beats(present) else present

    def _confirmed(self, start: Config, best: Settings) -> Settings:
        first = Settings(start)
        if best.config != start:
            self._say("the best settings against those of the start")
            best = self.race(first, [best], repeats=3)
        if not best.rank()[0]:
            raise measure.MeasurementFailed(
                f"no settings that were tried count, nor do the last: {best.trials[-1].problem}; raise --lag or memory"
            )
        return best

    def _try(self, settings: Settings) -> None:
        trial = self._measured(settings.config)
        settings.trials.append(trial)
        self.trials += 1
        found = f"{trial.tps:,.0f} trained a second, lag {trial.lag:.1f}" if trial.tps else "nothing"
        self._say(f"  {settings}: {found}" + (f" - {trial.problem}" if trial.problem else ""))


def neighbour(config: Config, move: str, by: int) -> Config | None:
    """The configuration one step down (`by` -1) or up (1) one of `MOVES`; None where there is none.

    A batch that holds all agents is as large as it can be.
    """
    each = per_process(config)
    processes = config.agents // each
    if move == "predictors":
        return _checked(config, predictors=config.predictors + by)
    if move == "max_batch":
        size = _scaled(min(config.max_batch, 1 << (config.agents - 1).bit_length()), by)
        return None if by > 0 and config.max_batch >= config.agents else _checked(config, max_batch=size)
    if move == "agents per process":
        each = _scaled(each, by)
    elif move == "processes":
        processes = _scaled(processes, by)
    else:
        processes, each = _scaled(processes, by), _scaled(each, -by)
    agents = processes * each
    if (agents == config.agents) != (move == "split"):  # there is no half of one
        return None
    limits = config.max_batch < config.agents
    size = config.max_batch if limits else max(config.max_batch, agents)
    return _checked(config, agents=agents, agents_per_process=each, max_batch=size)


def _checked(config: Config, **changes: int) -> Config | None:
    found = dataclasses.replace(config, **changes)
    try:
        check(found)
    except ConfigError:
        return None
    return found


def _scaled(count: int, by: int) -> int:
    return 2 * count if by > 0 else max(1, count // 2)


def trial(config: Config, seconds: float, lag: float) -> Trial:
    """Measures a configuration for `seconds`, half as long after it is going; `lag` is the highest that counts."""
    try:
        row = measure.row(config, seconds / 2, parts=False)
    except measure.MeasurementFailed as error:
        return Trial(0.0, 0.0, math.inf, str(error))
    memory, problem = row["memory"], ""
    if row["agents"] < config.agents or memory["with_full_rings"] > scheduler.MEMORY_SHARE * memory["limit"]:
        problem = "too much memory"
    elif row["policy_lag"] > lag:
        problem = f"the policy lag is above {lag:g}"
    return Trial(row["tps"], row["pps"], row["policy_lag"], problem)


def tune(config: Config, options: argparse.Namespace, about: dict[str, Any], say: Callable[[str], None]) -> int:
    """Searches from a configuration on, and writes what is best; returns the exit code."""
    prepare(config)
    say(f"{config.env}, tasks {','.join(config.tasks) or 'none'}; {about['cores']} cores of {about['processor']}")
    start, search = time.monotonic(), Search(lambda chosen: trial(chosen, options.seconds, options.lag), say)
    try:
        best, stopped = search.climb(config), ""
    except KeyboardInterrupt:
        if search.best is None:
            raise
        best, stopped = search.best, ", stopped before its end"
    minutes = (time.monotonic() - start) / 60
    trials = f"{search.trials} trials of {options.seconds:g} s, {minutes:.0f} minutes"
    comment = [
        f"Found by benchmark.py --tune in {trials}{stopped}",
        f"{time.strftime('%Y-%m-%d')}, {about['cores']} cores of {about['processor']}",
    ]
    if best.trials:  # the race that was stopped may have begun anew
        tps, pps, lag = (statistics.median(of) for of in list(zip(*best.trials, strict=True))[:3])
        comment.append(f"{tps:,.0f} agent steps a second trained, {pps:,.0f} acted, policy lag {lag:.1f}")
    write(options.toml, best.config, options.given, comment)
    say(f"{best}: {comment[-1]}")
    say(f"{options.toml}: python -m gunreal.train --config {options.toml}")
    return 130 if stopped else 0


def write(path: Path, config: Config, given: dict[str, Any], comment: Sequence[str]) -> None:
    """A file for `--config`: what was given, and the settings that were found. Raises OSError."""
    kept = {name: value for name, value in given.items() if name not in _UNUSED}
    kept |= {name: getattr(config, name) for name in TUNED}
    path.write_text("".join(f"# {line}\n" for line in comment) + tomli_w.dumps(kept))
