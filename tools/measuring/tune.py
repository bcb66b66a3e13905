"""`benchmark.py --tune`: a short search for the settings with the highest training rate on this machine.

The search is a hill climb along one setting at a time:

1. The current settings are compared with the next lower and the next higher value. All are measured in turn, the
   slowest is dropped, the other two are measured again, and the medians decide (successive halving).
2. The other value wins if it is 3 % faster, since repeated measurements differ by about that much. A value that is 10 %
   slower in its first measurement is not measured again.
3. If a value wins, the next one in the same direction is tried.
4. The climb ends when no setting has a better neighbor. A last comparison with the initial settings confirms the gain.

If the search is interrupted, it writes the best settings so far.

Settings are valid only if their policy lag is at most --lag, because lag harms learning, and if the system with full
replay rings fits into 95 % of the memory. The training batch size and the number of trainers are not tuned, because
they affect learning, too.
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
from gunreal.config.derived import per_process
from gunreal.config.schema import Config, ConfigError
from gunreal.runtime import scheduler
from gunreal.train import prepare
from measuring import measure

TUNED = ("agents", "agents_per_process", "predictors", "max_batch")
# Directions of the climb. "split" moves the same number of agents into more, smaller processes.
MOVES = ("agents per process", "processes", "split", "predictors", "max_batch")
MARGIN = 0.03  # share by which other settings have to be faster to win
HOPELESS = 0.1  # share by which other settings are so much slower that one measurement is enough
MOST = 100  # limit of trials, in case a climb runs in circles
_UNUSED = ("logdir", "name", "seed", "steps")  # fields that are not settings of a machine


class Trial(NamedTuple):
    """One measurement of some settings. `problem` says why the settings are invalid, or is empty."""

    tps: float
    pps: float
    lag: float
    problem: str


class Settings:
    """A configuration and its trials.

    Attributes:
      config: the configuration. Only its fields in `TUNED` change during the search.
      trials: measurements of the current comparison.
    """

    def __init__(self, config: Config):
        self.config = config
        self.trials: list[Trial] = []

    def rank(self) -> tuple[bool, float]:
        """Returns a sort key. Valid settings rank by training rate, above invalid settings, which rank by low lag."""
        counts = not any(trial.problem for trial in self.trials)
        if counts:
            return True, statistics.median(trial.tps for trial in self.trials)
        return False, -max(trial.lag for trial in self.trials)

    def beats(self, other: Settings, margin: float = MARGIN) -> bool:
        """Whether these settings rank higher, by the margin if both are valid."""
        mine, others = self.rank(), other.rank()
        return mine[1] > (1 + margin) * others[1] if mine[0] and others[0] else mine > others

    def __str__(self) -> str:
        config, each = self.config, per_process(self.config)
        agents = f"{config.agents // each} x {each} agents"
        return f"{agents}, predictors {config.predictors}, max_batch {config.max_batch}"


class Search:
    """The hill climb.

    Args:
      measured: measures a configuration.
      say: called with each line of progress.

    Attributes:
      trials: number of trials so far.
      best: current settings of the climb, or None before the first successful trial.
    """

    def __init__(self, measured: Callable[[Config], Trial], say: Callable[[str], None]):
        self._measured, self._say = measured, say
        self.trials = 0
        self.best: Settings | None = None

    def climb(self, start: Config) -> Settings:
        """Climbs from `start` and returns the best settings.

        Raises:
          MeasurementFailed: `start` can't be measured, or no valid settings were found.
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
        raise AssertionError("unreachable: itertools.cycle does not end")

    def _along(self, move: str, best: Settings) -> Settings:
        """Climbs along one of `MOVES`, and returns the same object if nothing better is found."""
        rivals = {by: config for by in (-1, 1) if (config := neighbor(best.config, move, by))}
        while rivals:
            self._say(f"{move}:")
            winner = self.race(best, [Settings(config) for config in rivals.values()])
            if winner is best:
                break
            (direction,) = (by for by, config in rivals.items() if config is winner.config)
            self.best = best = winner
            onward = neighbor(best.config, move, direction)
            rivals = {direction: onward} if onward else {}
        return best

    def race(self, present: Settings, rivals: Sequence[Settings], repeats: int = 2) -> Settings:
        """Returns the best rival if it is better than the present settings by the margin, else the present settings."""
        for settings in (present, *rivals):
            settings.trials = []  # earlier measurements may have seen another load on the machine
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
            self._say("comparing the best settings with the initial ones:")
            best = self.race(first, [best], repeats=3)
        if not best.rank()[0]:
            raise measure.MeasurementFailed(
                f"no valid settings found ({best.trials[-1].problem} in the last trial); use a larger --lag or fewer "
                "agents"
            )
        return best

    def _try(self, settings: Settings) -> None:
        trial = self._measured(settings.config)
        settings.trials.append(trial)
        self.trials += 1
        found = f"{trial.tps:,.0f} agent steps/s trained, lag {trial.lag:.1f}" if trial.tps else "failed"
        self._say(f"  {settings}: {found}" + (f" - {trial.problem}" if trial.problem else ""))


def neighbor(config: Config, move: str, by: int) -> Config | None:
    """Returns the configuration one step down (`by` -1) or up (1) along one of `MOVES`, or None if there is none.

    `max_batch` is not raised beyond the number of agents.
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
    if (agents == config.agents) != (move == "split"):  # a single process or agent can't be halved
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
    """Measures a configuration for `seconds` after a warm-up of half that time. Settings above `lag` are invalid."""
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
    """Searches from a configuration, writes the best settings, and returns the exit code."""
    prepare(config)
    say(f"{config.env}, tasks {','.join(config.tasks) or 'none'}; {about['cores']} cores of {about['processor']}")
    start, search = time.monotonic(), Search(lambda chosen: trial(chosen, options.seconds, options.lag), say)
    try:
        best, stopped = search.climb(config), ""
    except KeyboardInterrupt:
        if search.best is None:
            raise
        best, stopped = search.best, ", stopped early"
    minutes = (time.monotonic() - start) / 60
    trials = f"{search.trials} trials of {options.seconds:g} s, {minutes:.0f} minutes"
    comment = [
        f"Found by benchmark.py --tune in {trials}{stopped}",
        f"{time.strftime('%Y-%m-%d')}, {about['cores']} cores of {about['processor']}",
    ]
    if best.trials:  # an interrupted comparison may have cleared them
        tps, pps, lag = (statistics.median(of) for of in list(zip(*best.trials, strict=True))[:3])
        comment.append(f"{tps:,.0f} agent steps per second trained, {pps:,.0f} acted, policy lag {lag:.1f}")
    say(f"{best}: {comment[-1]}")
    write(options.toml, best.config, options.given, comment)
    say(f"settings written; to use them, run: python -m gunreal.train --config {options.toml}")
    return 130 if stopped else 0


def write(path: Path, config: Config, given: dict[str, Any], comment: Sequence[str]) -> None:
    """Writes a file for `--config` with the given fields and the tuned settings. Raises OSError."""
    kept = {name: value for name, value in given.items() if name not in _UNUSED}
    kept |= {name: getattr(config, name) for name in TUNED}
    path.write_text("".join(f"# {line}\n" for line in comment) + tomli_w.dumps(kept))
