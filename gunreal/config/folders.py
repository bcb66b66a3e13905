"""The folder of a run: its name, its location under `logdir` and the configuration saved in it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gunreal.config.checks import check
from gunreal.config.fields import AUTO
from gunreal.config.files import load_saved, save
from gunreal.config.packages import package
from gunreal.config.resolve import OF_MACHINE
from gunreal.config.schema import FIELDS, Config, ConfigError, close_match, typed

CONFIG = "config.toml"
ZOO = "zoo:"  # begins the name of a trained agent of the package gunreal-zoo

# Fields that may differ between runs of the same setting: what is saved, and what suits the machine.
INCIDENTAL = frozenset(
    ("checkpoint_minutes", "keep_checkpoints", "metrics_seconds", "track")
    + ("eval_steps", "eval_minutes", "eval_episodes")
    + ("agents_per_process", "predictors", "max_batch", "env_timeout", "devices", "address", "node_timeout")
    + OF_MACHINE
)
# Fields that may change when a run is resumed. All others define the environment, the network or the learning.
# The weights of the tasks may change, too. The runner may change between those in `_SAME_CHECKPOINTS`.
CHANGEABLE = INCIDENTAL | frozenset(
    ("steps", "runner", "agents", "trainers", "scheduler", "scheduler_seconds", "quorum", "gradient_dtype")
)
_SAME_CHECKPOINTS = {"parallel", "cluster"}


def saved_config(run_dir: str | Path) -> Config:
    """The configuration saved in a run's folder. Raises ConfigError as `gunreal.config.files.load_saved` does."""
    return load_saved(Path(run_dir) / CONFIG)


def save_config(config: Config, run_dir: Path, used: Mapping[str, Any] | None = None) -> None:
    """Saves the configuration of a run as `gunreal.config.files.save` does.

    The file keeps the time at which the run was begun, by which `runs` sorts.
    """
    file = run_dir / CONFIG
    begun = file.stat().st_mtime_ns
    save(config, file, used)
    with contextlib.suppress(OSError):  # some network file systems refuse it
        os.utime(file, ns=(begun, begun))


def prepare_run_dir(config: Config) -> Path:
    """Creates the folder of a new run, `logdir/name`, and saves the configuration in it.

    An empty `name` is replaced by a unique one made from the environment, the tasks and the time. The run is named
    after its folder: `config.toml` holds `dataclasses.replace(config, name=path.name)`.

    Returns:
      The path of the folder.

    Raises:
      ConfigError: the folder is not empty or cannot be written.
    """
    try:
        path = _make(config)
        _claim(path)
        try:
            save(dataclasses.replace(config, name=path.name), path / CONFIG)
        except BaseException:  # so that the name can be used again
            (path / CONFIG).unlink()
            path.rmdir()
            raise
    except OSError as error:
        where = error.filename or config.logdir
        too_long = error.errno == errno.ENAMETOOLONG
        fix = "shorten --name or --logdir" if too_long else "choose another folder with --logdir"
        raise ConfigError(f"cannot write to {where}: {error.strerror}; {fix}") from error
    return path


def expanded(path: str) -> Path:
    """The path with the home folder in place of `~`.

    Raises:
      ConfigError: there is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{path} begins with the home folder of an unknown user; write it without ~") from error


@contextlib.contextmanager
def writing(run_dir: str | Path) -> Iterator[None]:
    """Makes the error of a file in the folder of a run that cannot be written a ConfigError of one line."""
    try:
        yield
    except OSError as error:
        where = error.filename or run_dir
        raise ConfigError(f"cannot write to {where}: {error.strerror}; {remedy(run_dir, error)}") from error


def remedy(run_dir: str | Path, error: OSError) -> str:
    """What to do about a failed write in the folder of a run."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"free some space in {run_dir}" if full else f"make {run_dir} and its files writable"


def command(name: str, run_dir: str | Path) -> str:
    """The command line `gunreal NAME RUN`, quoted so that it can be copied to a shell."""
    run = short(run_dir)
    return shlex.join(["gunreal", name, run if "/" in run else f"./{run}"])  # a name alone is looked up in `runs`


def short(path: str | Path) -> str:
    """A path as it is written in the current folder."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (OSError, ValueError):  # it is elsewhere, or the current folder is gone
        return str(path)


def _make(config: Config) -> Path:
    logdir = expanded(config.logdir).absolute()  # an environment may change the current folder
    if config.name:
        path = logdir / config.name
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()) and not (path / CONFIG).is_file():
            raise ConfigError(f"{path} is not empty and holds no run; empty it or choose another --name")
        return path
    logdir.mkdir(parents=True, exist_ok=True)
    words = [re.split("[/:]", config.env)[-1], *(task.split(":")[-1] for task in config.tasks)]
    stem = re.sub(r"[^\w.-]+", "_", "-".join([*words, time.strftime("%Y%m%d-%H%M%S")]))
    for count in range(1, 1000):
        path = logdir / (stem if count == 1 else f"{stem}-{count}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            continue
    raise ConfigError(f"{logdir} has too many runs started in the same second; give this one a --name")


def _claim(path: Path) -> None:
    """Makes the folder's configuration, still empty. Of several runs that start at once, one succeeds."""
    try:
        (path / CONFIG).touch(exist_ok=False)
    except FileExistsError:
        raise ConfigError(
            f"{path} already holds a run; continue it with {command('resume', path)} or choose another --name"
        ) from None


@contextlib.contextmanager
def locked(run_dir: str | Path) -> Iterator[None]:
    """Locks the folder of a run, so that no other process trains the same run. The lock ends with this process.

    Raises:
      ConfigError: another process holds it.
    """
    with _lock(run_dir, fcntl.LOCK_EX) as taken:
        if taken is False:
            raise ConfigError(f"{run_dir} is being trained by another process; stop that one first, or start a new run")
        yield


def is_busy(run_dir: str | Path) -> bool | None:
    """Whether a process trains the run. None if the file system has no locks. Raises OSError if there is no folder."""
    with _lock(run_dir, fcntl.LOCK_SH) as taken:
        return None if taken is None else not taken


@contextlib.contextmanager
def _lock(run_dir: str | Path, kind: int) -> Iterator[bool | None]:
    """Tries to lock a folder meanwhile. Gives whether it did, or None: some network file systems have no locks."""
    folder = os.open(run_dir, os.O_RDONLY)
    try:
        taken: bool | None = True
        try:
            fcntl.flock(folder, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            taken = False
        except OSError:
            taken = None
        yield taken
    finally:
        os.close(folder)


def runs(logdir: Path, sweeps: bool = False) -> list[Path]:
    """The folders of the runs in `logdir`, with `sweeps` also those of its sweeps, oldest first. Raises OSError."""
    files = [file for depth in range(1, 2 + sweeps) for file in logdir.glob("*/" * depth + CONFIG)]
    return [file.parent for file in sorted(files, key=lambda path: path.stat().st_mtime)]


def zoo() -> dict[str, Path]:
    """The folders of the trained agents by name, from the folder `zoo` of a source checkout or else from gunreal-zoo.

    Raises:
      ConfigError: the package is not installed.
    """
    root = Path(__file__).parents[2] / "zoo" / "gunreal_zoo"
    if not root.is_dir():
        found = package("gunreal_zoo", "the zoo is a package of its own; run pip install gunreal-zoo")
        root = Path(str(found.__file__)).parent
    return {file.parent.name: file.parent for file in sorted(root.glob(f"*/{CONFIG}"))}


def places(name: str, logdir: str) -> tuple[Path, Path]:
    """Where a run may be: at this path, and under `logdir`. Raises ConfigError as `expanded`."""
    return expanded(name), expanded(logdir) / name


def find(name: str, logdir: str = Config.logdir) -> Path:
    """The folder of an existing run.

    Args:
      name: path of the folder, name of a run under `logdir`, or "zoo:NAME". A name without a slash is looked up there
        first.
      logdir: folder of runs.

    Raises:
      ConfigError: the run does not exist.
    """
    if name.startswith(ZOO):
        agents, agent = zoo(), name.removeprefix(ZOO)
        if agent not in agents:
            raise ConfigError(
                f"the zoo has no {agent!r}{close_match(agent, agents) or '; gunreal zoo lists all agents'}"
            )
        return agents[agent]
    under, found = expanded(logdir), places(name, logdir)
    for path in found if "/" in name else reversed(found):
        with contextlib.suppress(OSError):  # such as a name that is too long
            if name and (path / CONFIG).is_file():
                return path.resolve()
    known: list[str] = []
    with contextlib.suppress(OSError):  # such as a logdir whose name is too long
        if inside := [run for path in found if name for run in runs(path)]:
            raise ConfigError(f"{name!r} is a folder of runs; name one of them, such as {short(inside[-1])}")
        known = [str(path.relative_to(under)) for path in runs(under, sweeps=True)]
    hint = close_match(name, known) or (f"; the newest run there is {known[-1]}" if known else "; check --logdir")
    raise ConfigError(f"run {name!r} not found, neither as a folder nor in {under}{hint}")


def resume_config(run_dir: str | Path, overrides: Mapping[str, Any]) -> Config:
    """The saved configuration of a run, changed by `overrides`.

    `logdir` and `name` are set to the run's current location. Of `task`, only the options in it are overridden, and
    only weights may change.

    Raises:
      ConfigError: an override is invalid, or changes the environment, the tasks, the network or the learning.
    """
    run_dir = Path(run_dir).resolve()
    saved = saved_config(run_dir)
    saved = dataclasses.replace(saved, logdir=str(run_dir.parent), name=run_dir.name)
    for name, value in overrides.items():
        if name not in FIELDS:
            raise ConfigError(f"the configuration has no {name}{close_match(name, FIELDS) or '; leave it out'}")
        value, kept = typed(name, value), getattr(saved, name)
        given = kept | value if isinstance(value, dict) else value  # a table may name a part of the options
        may = {given, kept} <= _SAME_CHECKPOINTS if name == "runner" else name in CHANGEABLE | {"logdir", "task"}
        if given not in (kept, AUTO, (AUTO,)) and not may:  # auto keeps what the run has chosen
            raise _unchangeable(name, repr(kept), repr(value))
    changed = {name: typed(name, value) for name, value in overrides.items() if name in CHANGEABLE}
    if "task" in overrides:
        changed["task"] = _task_options(saved, typed("task", overrides["task"]))
    config = dataclasses.replace(saved, **changed)
    check(config, changed)
    return config


def _task_options(saved: Config, given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The options of the tasks that a run has saved, changed by those that are `given` when it is resumed.

    Options of unknown tasks are added without a check. They are refused when the tasks are loaded.

    Raises:
      ConfigError: an option other than a weight would change.
    """
    table = {task: dict(options) for task, options in saved.task.items()}
    for task, options in given.items():
        for name, value in options.items():
            kept = value if name == "weight" else saved.task.get(task, {}).get(name, value)
            if value != kept:
                raise _unchangeable(f"task.{task}.{name}", repr(kept), repr(value))
            table.setdefault(task, {})[name] = value
    return table


def _unchangeable(name: str, kept: str, value: str) -> ConfigError:
    """The error for a setting of a resumed run that may not change from `kept` to `value`."""
    return ConfigError(
        f"a resumed run cannot change {name} from {kept} to {value}; leave it out, or start a new run with --init"
    )
