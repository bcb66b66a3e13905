"""How many agent steps does training need to reach a score, with and without auxiliary tasks?

  python tools/steps_to_score.py --env gunreal/RareGoalMaze-v0 --score 0.8 --steps 150000 --seeds 5

The program trains every setting with every seed, one run after the other. A run ends when the mean score of its last
100 episodes reaches --score, or after --steps agent steps. Finished runs are not repeated, unfinished runs are removed
and start again, and runs with other flags need another --logdir. All other flags are passed to gunreal.train.

Exit codes: 0 on success, 1 if a training failed, 2 for bad input, 130 if stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from common.command_line import (
    Parser,
    check_positive,
    check_writable,
    folder,
    handled,
    positive_count,
    stop_signals,
    stopped,
)

from gunreal.config import folders
from gunreal.config.derived import is_device
from gunreal.config.flags import from_flags
from gunreal.config.schema import Config, ConfigError
from gunreal.learning import devices
from gunreal.records import metrics
from gunreal.train import prepare


class Failed(Exception):
    """A training ended with an error."""


class Run(NamedTuple):
    """A run to be trained.

    Attributes:
      setting: its tasks, separated by commas.
      seed: random seed.
      name: name of the run.
      arguments: flags of its training.
    """

    setting: str
    seed: int
    name: str
    arguments: list[str]


def steps_to(lines: list[dict], score: float) -> int | None:
    """Returns the first step with a mean score of at least `score`, or None."""
    there = (line["step"] for line in lines if line["episodes"] >= 100 and line["score_mean"] >= score)
    return next(there, None)


def record(name: str, arguments: list[str], logdir: Path, score: float) -> tuple[Path, str]:
    """The file that says how a finished run was trained, and what it contains."""
    return logdir / f"{name}.flags", shlex.join([*arguments, "--score", str(score)])


def clear(name: str, arguments: list[str], logdir: Path, score: float) -> None:
    """Removes an unfinished run of this command.

    Raises:
      ConfigError: the run is still being trained, a finished run has other flags, or the folder has another run.
    """
    file, flags = record(name, arguments, logdir, score)
    if file.exists():
        if file.read_text() != flags:
            raise ConfigError(f"{logdir / name} was trained with other flags; choose another --logdir")
    elif (logdir / name).exists():
        if not begun(file).exists():
            raise ConfigError(f"{logdir / name} is not a run of this command; choose another --logdir")
        with folders.locked(logdir / name):
            shutil.rmtree(logdir / name)


def begun(file: Path) -> Path:
    """The file that says that the run of a `record` has begun."""
    return file.with_suffix(".begun")


def run(name: str, arguments: list[str], logdir: Path, score: float) -> int | None:
    """Trains until the score or the end of the budget. Returns the steps to the score, or None if not reached.

    Raises:
      Failed: the training ended with an error.
      KeyboardInterrupt: a signal has stopped it.
    """
    path = logdir / name / metrics.FILE
    file, flags = record(name, arguments, logdir, score)
    if not file.exists():
        command = [sys.executable, "-m", "gunreal.train", "--logdir", str(logdir), "--name", name, *arguments]
        logdir.mkdir(parents=True, exist_ok=True)
        begun(file).touch()
        try:
            code = _train(command, path, score)
        finally:
            if not path.parent.exists():
                begun(file).unlink()
        if code:
            raise Failed(f"{shlex.join(command)} ended with code {code}")
        file.write_text(flags)
        begun(file).unlink()
    return steps_to(metrics.read(path), score)


def _train(command: list[str], path: Path, score: float) -> int:
    """Trains and returns the exit code. The training is stopped at the score.

    Raises:
      KeyboardInterrupt: a signal has come. It has been passed on, and the training has ended.
    """
    came: list[int] = []
    with handled(stop_signals(), lambda number, _: came.append(number)):
        # In a session of its own, the training gets Ctrl-C from here only.
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        sent, reached = 0, False
        while child.poll() is None:
            time.sleep(0.5)
            reached = reached or (path.exists() and steps_to(metrics.read(path), score) is not None)
            wanted = max(len(came), int(reached))  # a further signal ends a training that is saving its checkpoint
            if wanted > sent:
                sent = wanted
                child.send_signal(signal.SIGINT)
    if came:
        raise KeyboardInterrupt
    return child.returncode


def plan(options: argparse.Namespace, rest: Sequence[str]) -> list[Run]:
    """Returns the runs, ordered by seed.

    Args:
      options: the options of this command.
      rest: the flags for all trainings.
    """
    runs = []
    settings = options.settings.split(";")
    for seed in range(1, options.seeds + 1):
        for setting in settings:
            arguments = ["--env", options.env, "--tasks", setting, "--seed", str(seed), "--steps", str(options.steps)]
            name = f"{options.env.split('/')[-1]}-{_label(setting)}-s{seed}"
            arguments += ["--metrics_seconds", "2", *rest]
            runs.append(Run(setting, seed, name, arguments if setting else _with_task_share(arguments, settings)))
    return runs


def _with_task_share(arguments: list[str], settings: Sequence[str]) -> list[str]:
    """Returns flags for a setting without tasks, which reset a task_share that is meant for the other settings."""
    tasks = next(filter(None, settings), "")
    if not tasks or from_flags(["train", *arguments, "--tasks", tasks])[0].task_share == Config.task_share:
        return arguments
    return [*arguments, "--task_share", str(Config.task_share)]


def _label(setting: str) -> str:
    return setting.replace(",", "_") or "base"


def check(runs: Sequence[Run], logdir: Path) -> None:
    """Raises ConfigError if a run can't be trained."""
    for setting, seed, name, arguments in runs:
        config, extras = from_flags(["train", "--logdir", str(logdir), "--name", name, *arguments])
        if extras.resume:
            raise ConfigError("--resume can't be used here, because unfinished runs start again; leave it out")
        own = {"name": name, "seed": seed, "tasks": tuple(setting.split(",")) if setting else ()}
        for field, value in own.items():
            if getattr(config, field) != value:
                raise ConfigError(f"--{field} is set by this command; leave it out")
        if seed > 1:
            continue  # it only differs in the seed
        if "backend" not in extras.given:
            backend = "jax" if is_device(config) else devices.usable(config.backend)
            config = dataclasses.replace(config, backend=backend)
        prepare(config)


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[Run]]:
    """Returns the options and the runs, of which unfinished ones have been removed. Raises ConfigError."""
    parser = Parser("steps_to_score.py", __doc__)
    add = parser.add_argument
    add("--env", default="gunreal/RareGoalMaze-v0", help="environment (default: gunreal/RareGoalMaze-v0)")
    add("--score", type=float, default=0.8, help="target for the mean score of 100 episodes (default: 0.8)")
    add("--steps", default="150000", metavar="N", help="longest run, in agent steps (default: 150000)")
    add("--seeds", type=int, default=5, metavar="N", help="number of seeds (default: 5)")
    add(
        "--settings",
        default=";pc,vr,rp",
        help='sets of tasks, separated by semicolons (default: ";pc,vr,rp", which is no task and then all three)',
    )
    add(
        "--logdir",
        type=folder,
        default=Path("runs/steps_to_score"),
        help="folder of runs (default: runs/steps_to_score)",
    )
    add("--json", type=Path, metavar="FILE", help="file for the results (default: none)")
    options, rest = parser.parse_known_args(argv)
    check_positive("seeds", options.seeds)
    options.steps = positive_count("steps", options.steps)
    check_writable(options.json)
    runs = plan(options, rest)
    check(runs, options.logdir)
    for _, _, name, arguments in runs:
        clear(name, arguments, options.logdir, options.score)
    return options, runs


def measure(options: argparse.Namespace, runs: Sequence[Run]) -> None:
    """Prints the steps of each run and the median of each setting. An unsuccessful run counts with its whole budget."""
    found: dict[str, list[int | None]] = {}
    for setting, seed, name, arguments in runs:
        steps, label = run(name, arguments, options.logdir, options.score), _label(setting)
        found.setdefault(label, []).append(steps)
        there = steps if steps is not None else f"not reached in {options.steps}"
        print(f"{label:<12} seed {seed}: {there}", flush=True)
    for label, of in found.items():
        median = statistics.median(options.steps if steps is None else steps for steps in of)
        missed = of.count(None)
        at_least = ">= " if 2 * missed >= len(of) else ""
        print(f"{label:<12} median {at_least}{median:.0f}, not reached by {missed} of {options.seeds} runs")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    try:
        measure(*parse(sys.argv[1:] if argv is None else argv))
    except (ConfigError, Failed) as error:
        print(f"steps_to_score.py: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return stopped()
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
