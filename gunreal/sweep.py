"""`gunreal sweep FILE`: trains several settings with several seeds in one or several environments, and compares them.

The file has the settings of `gunreal train`, and a table for each setting that is compared:

    seeds = 3
    envs = ["ALE/Pong-v5", "ALE/Breakout-v5"]
    steps = 2_000_000

    [settings.base]

    [settings.tasks]
    tasks = ["pc", "vr", "rp"]

These are twelve runs. Each is a folder in runs/NAME, where NAME is that of the file. All are checked before the first
one starts. After an interruption, run the same command again. It resumes unfinished runs, tries failed ones again and
keeps finished ones. Flags of `gunreal train` override the file.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import math
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gunreal.compare import text
from gunreal.config import flags, folders, sweeps
from gunreal.config.arguments import Arguments
from gunreal.config.process import set_up
from gunreal.config.schema import Config, ConfigError
from gunreal.config.sweeps import Sweep
from gunreal.config.warning import warn
from gunreal.records import comparison
from gunreal.runtime.jobs import Job, Scheduler

_EVERY = 300.0  # seconds between lines of progress
_COLUMNS = ("run", "state", "agent steps", "score", "speed", "time left")
_ORDER = ("running", "evaluating", "failed", "stopped", "waiting", "finished")


def _check(given: dict[str, Any]) -> str:
    """Checks a configuration as `gunreal train` does, and returns what is wrong with it.

    It has a process of its own, because an environment or a device may leave something behind.
    """
    from gunreal.config.checks import OF_IMAGES, check
    from gunreal.train import prepare, with_backend

    set_up()
    try:
        config = Config(**given)
        check(config)
        prepare(with_backend(config, given), given.keys() - OF_IMAGES)  # which may be for another environment
    except ConfigError as error:
        return str(error)
    return ""


def _quiet() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback after Ctrl-C


def check(jobs: Sequence[Job], say: Callable[[str], None]) -> None:
    """Checks all runs before anything starts.

    Raises:
      ConfigError: a run cannot be trained, or its folder has another run.
    """
    for job in jobs:
        job.check()
    planned = {(job.planned.setting, job.planned.config.env): job for job in reversed(jobs) if job.next()}  # one seed
    if len(planned) > 1:
        say(f"checking {len(planned)} configurations")
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context, initializer=_quiet, max_tasks_per_child=1) as pool:
        for job in reversed(planned.values()):
            try:
                wrong = pool.submit(_check, job.planned.given).result()
            except concurrent.futures.BrokenExecutor:
                wrong = "the process that opened the environment died"
            if wrong:
                raise ConfigError(f"{job.name}: {wrong}")


class _Progress:
    """Shows the state of all runs: a table that is drawn again and again in a terminal, or else a line now and then."""

    def __init__(self, live: Any = None):
        self._live, self._due = live, 0.0 if live else time.monotonic() + _EVERY

    def say(self, text: str) -> None:
        """Prints a line."""
        write = self._live.console.print if self._live else functools.partial(print, flush=True)
        write(f"{time.strftime('%H:%M')} {text}")

    def show(self, scheduler: Scheduler, now: bool = False) -> None:
        """Shows the present state, if it is time."""
        if time.monotonic() < self._due and not now:
            return
        self._due = time.monotonic() + (1.0 if self._live else _EVERY)
        if self._live:
            self._live.update(_table(scheduler), refresh=True)
        else:
            for job in scheduler.jobs:
                if scheduler.states[job.name] in ("running", "evaluating"):
                    self.say(f"{job.name}: {', '.join(filter(None, _cells(job, scheduler)[1:]))}")
            self.say(_summary(scheduler))


@contextlib.contextmanager
def _progress() -> Iterator[_Progress]:
    if sys.stdout is None or not sys.stdout.isatty():
        yield _Progress()
        return
    from rich.console import Console
    from rich.live import Live

    # No thread redraws it, because a process that is forked beside one may hang.
    with Live(console=Console(highlight=False, markup=False), auto_refresh=False) as live:
        yield _Progress(live)


def _table(scheduler: Scheduler) -> Any:
    from rich.table import Table

    table = Table(*_COLUMNS, caption=_summary(scheduler), caption_justify="left")
    for job in sorted(scheduler.jobs, key=lambda job: _ORDER.index(scheduler.states[job.name])):
        table.add_row(*_cells(job, scheduler))
    return table


def _cells(job: Job, scheduler: Scheduler) -> list[str]:
    state, lines = scheduler.states[job.name], job.lines()
    if not lines:
        return [job.name, state, f"0 of {job.steps:,}", "", "", ""]
    score = next((line["score_mean"] for line in reversed(lines) if line["score_mean"] is not None), None)
    left = f"{job.seconds_left(_rate(job)) / 3600:.1f} h left" if state == "running" else ""
    steps = f"{lines[-1]['step']:,} of {job.steps:,}"
    return [job.name, state, steps, "" if score is None else f"{score:.2f}", f"{_rate(job):,.0f} steps/s", left]


def _rate(job: Job) -> float:
    """Agent steps a second since the start of the run."""
    return max(job.lines()[-1]["step"], 1) / max(job.lines()[-1]["seconds"], 1e-9)


def _summary(scheduler: Scheduler) -> str:
    counts = {state: list(scheduler.states.values()).count(state) for state in _ORDER}
    words = [f"{count} {state}" for state, count in counts.items() if count]
    open_jobs = [job for job in scheduler.jobs if scheduler.states[job.name] in ("running", "waiting")]
    rates = [_rate(job) for job in scheduler.jobs if scheduler.states[job.name] == "running" and job.lines()]
    if rates:
        seconds = sum(job.seconds_left(sum(rates) / len(rates)) for job in open_jobs) / len(rates)
        words.append(f"about {seconds / 3600:.1f} h left")
    return f"{len(scheduler.jobs)} runs: {', '.join(words)}"


def run(sweep: Sweep) -> int:
    """Trains what is missing, and prints a comparison. Returns the exit code: 0, 1 if a run failed, 130 if stopped.

    Raises:
      ConfigError: a run cannot be trained. Nothing has been started.
    """
    jobs = [Job(planned, sweep) for planned in sweep.runs]
    folder = sweep.folder
    with folders.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with folders.locked(folder), _progress() as progress:
        try:
            check(jobs, progress.say)
        except BaseException:
            with contextlib.suppress(OSError):
                folder.rmdir()  # if it is empty
            raise
        scheduler = Scheduler(jobs, sweep.parallel, progress.say, lambda: progress.show(scheduler))
        progress.say(f"{_summary(scheduler)}; in {folder}")
        scheduler.run()
        progress.show(scheduler, now=True)
    if scheduler.stopping:
        warn("stopped; run the same command again to continue")
        return 130
    failed = [job for job in jobs if scheduler.states[job.name] == "failed"]
    groups: dict[str, list[Path]] = {job.planned.setting: [] for job in jobs}  # the first one is the reference
    for job in jobs:
        if job.next() is None:
            groups[job.planned.setting].append(job.path)
    if groups := {setting: paths for setting, paths in groups.items() if paths}:
        score = sweep.score if math.isfinite(sweep.score) else None
        try:
            print(text(comparison.compare(groups, score=score)))
        except ConfigError as error:  # such as a run without a score
            warn(str(error))
    for job in failed:
        where = f"; see {job.log}" if job.log.is_file() else ""
        warn(f"{job.name} failed{where}. The same command tries it again")
    return 1 if failed else 0


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 for success, 1 if a run failed, 130 if stopped."""
    return run(_parse(argv))


def _parse(argv: Sequence[str]) -> Sweep:
    parser = _parser(argv[0])
    options, rest = parser.parse_known_args(argv[1:])
    before = argv[argv.index(options.file) - 1]
    if before.startswith("-") and before in rest and "=" not in before:  # the file is its value
        raise ConfigError(f"name the file first, as in {argv[0]} FILE {before} ...")
    given = flags.settings([argv[0], *rest]) if rest else {}
    own = {name: getattr(options, name) for name in ("seeds", "parallel", "score", "minutes", "episodes")}
    lists = {"only": options.settings, "envs": options.envs}
    own |= {name: value.split(",") for name, value in lists.items() if value}
    return sweeps.load(options.file, given, own)


def _parser(program: str) -> Arguments:
    description = (__doc__ or "").partition(": ")[2]
    epilog = "All settings of gunreal train are flags, too."
    parser = Arguments(program, description[0].upper() + description[1:], epilog=epilog)
    add = parser.add_argument
    add("file", metavar="FILE", help="a TOML file as above")
    add("--parallel", type=int, metavar="N", help="number of runs at a time, which slow each other down (default: 1)")
    add("--seeds", type=int, metavar="N", help="number of seeds, in place of the file's")
    add("--settings", metavar="A,B", help="settings to train (default: all)")
    add("--envs", metavar="A,B", help="environments, in place of the file's")
    add("--score", type=float, metavar="X", help="mean score of 100 episodes at which a run ends (default: none)")
    add("--minutes", type=float, metavar="N", help="training time after which a run ends (default: none)")
    add("--episodes", type=int, metavar="N", help="number of episodes of an evaluation after each run (default: none)")
    return parser
