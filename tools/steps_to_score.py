"""How many agent steps does training need to reach a score, with and without auxiliary tasks?

  python tools/steps_to_score.py --env gunreal/RareGoalMaze-v0 --score 0.8 --steps 150000 --seeds 5

The program trains every setting with every seed, one run after the other. A run ends when the mean score of its last
100 episodes reaches --score, or after --steps agent steps. Finished runs are not repeated, unfinished runs are removed
and start again, and runs with other flags need another --logdir. All other flags are passed to gunreal.train.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common.command_line import check_writable

from gunreal.config import folders
from gunreal.config.schema import ConfigError
from gunreal.records import metrics


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
    """Trains until the score or the end of the budget. Returns the steps to the score, or None if not reached."""
    path = logdir / name / metrics.FILE
    file, flags = record(name, arguments, logdir, score)
    if not file.exists():
        command = [sys.executable, "-m", "gunreal.train", "--logdir", str(logdir), "--name", name, *arguments]
        logdir.mkdir(parents=True, exist_ok=True)
        begun(file).touch()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while child.poll() is None:
                time.sleep(0.5)
                if path.exists() and steps_to(metrics.read(path), score) is not None:
                    child.send_signal(signal.SIGINT)
                    child.wait()
        except KeyboardInterrupt:
            child.wait()  # it still saves a checkpoint, and the same command would refuse to start
            raise
        if child.returncode:
            raise SystemExit(f"{' '.join(command)} ended with code {child.returncode}")
        file.write_text(flags)
        begun(file).unlink()
    return steps_to(metrics.read(path), score)


def main() -> int:
    """Prints the steps of each run and the median of each setting. An unsuccessful run counts with its whole budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--env", default="gunreal/RareGoalMaze-v0", help="environment (default: gunreal/RareGoalMaze-v0)"
    )
    parser.add_argument(
        "--score", type=float, default=0.8, help="target for the mean score of 100 episodes (default: 0.8)"
    )
    parser.add_argument("--steps", type=int, default=150_000, help="longest run, in agent steps (default: 150000)")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default: 5)")
    parser.add_argument(
        "--settings",
        default=";pc,vr,rp",
        help='sets of tasks, separated by semicolons (default: ";pc,vr,rp", which is no task and then all three)',
    )
    parser.add_argument(
        "--logdir",
        type=Path,
        default=Path("runs/steps_to_score"),
        help="folder of runs (default: runs/steps_to_score)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for the results (default: none)")
    own, rest = parser.parse_known_args()
    runs = []
    for seed in range(1, own.seeds + 1):
        for setting in own.settings.split(";"):
            arguments = ["--env", own.env, "--tasks", setting, "--seed", str(seed), "--steps", str(own.steps)]
            label = setting.replace(",", "_") or "base"
            name = f"{own.env.split('/')[-1]}-{label}-s{seed}"
            runs.append((label, seed, name, [*arguments, "--metrics_seconds", "2", *rest]))
    try:
        check_writable(own.json)
        for _, _, name, arguments in runs:
            clear(name, arguments, own.logdir, own.score)
    except ConfigError as error:
        parser.error(str(error))
    found: dict[str, list[int | None]] = {}
    for label, seed, name, arguments in runs:
        steps = run(name, arguments, own.logdir, own.score)
        found.setdefault(label, []).append(steps)
        print(f"{label:<12} seed {seed}: {steps if steps is not None else f'not reached in {own.steps}'}", flush=True)
    for label, steps in found.items():
        median = statistics.median(own.steps if s is None else s for s in steps)
        missed = steps.count(None)
        at_least = ">= " if 2 * missed >= len(steps) else ""
        print(f"{label:<12} median {at_least}{median:.0f}, not reached by {missed} of {own.seeds} runs")
    if own.json:
        own.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
