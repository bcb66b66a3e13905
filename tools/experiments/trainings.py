"""The runs that an experiment wants, and how far they are.

A run has finished when the last line of its metrics says `stopped_by: steps`, or when it has ended in order after the
time that it was given; else it goes on from its newest checkpoint. A run that another experiment has with the same
configuration is not trained twice: it gets a second name, a symbolic link.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.jobs import Job
from experiments.table import FOREVER, TASKS, Experiment, LearningExperiment
from gunreal.config import flags, folders
from gunreal.config.schema import Config, ConfigError, save

# Fields in which a run may differ from what is asked for and still be the same experiment.
_WATCHING = ("name", "logdir", "checkpoint_minutes", "keep_checkpoints", "metrics_seconds", "memory_limit")
_NO_TASK = "-"
_OWN = {"seed": "--seeds", "name": "the experiment's name", "logdir": "--logdir"}


@dataclasses.dataclass(frozen=True)
class Training(Job):
    """A run that an experiment wants: a setting with a seed. `config` names the run and its folder of runs.

    `minutes` of training, or a mean `score`, end it where it has not taken its steps by then.
    """

    setting: str
    config: Config
    minutes: float = math.inf
    score: float = math.inf

    @property
    def name(self) -> str:
        """The run's name."""
        return self.config.name

    @property
    def steps(self) -> int:
        """The budget in agent steps."""
        return self.config.steps

    @property
    def path(self) -> Path:
        """The run's folder, there or not."""
        return Path(self.config.logdir) / self.config.name

    def prepare(self) -> None:
        """Writes the setting's configuration."""
        self.settings_file.parent.mkdir(parents=True, exist_ok=True)
        save(dataclasses.replace(self.config, name="", seed=Config.seed), self.settings_file)

    def resumable(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return any((self.path / "checkpoints").glob("step_*.npz"))

    def command(self) -> list[str]:
        """What trains it, from where it is."""
        program = [sys.executable, "-m", "gunreal.train"]
        if self.resumable():
            return [*program, "--resume", str(self.path)]
        where = ["--logdir", self.config.logdir, "--name", self.config.name]
        return [*program, "--config", str(self.settings_file), *where, "--seed", str(self.config.seed)]

    @property
    def settings_file(self) -> Path:
        """The setting's configuration as TOML, beside the runs: `EXPERIMENT-SETTING.toml`."""
        return self.path.with_name(self.config.name.rpartition("-s")[0] + ".toml")


def budget(steps: int, minutes: float) -> str:
    """What ends a run, in words."""
    words = [f"{minutes:g} min"] if math.isfinite(minutes) else []
    return ", or ".join([*words, f"{steps:,} agent steps"] if steps < FOREVER or not words else words)


def run_name(experiment: str, setting: str, seed: int | str) -> str:
    """The name of a run."""
    return f"{experiment}-{setting}-s{seed}"


def plan(
    experiment: LearningExperiment, seeds: int, extra: Sequence[str], env: str = "", steps: int = 0, logdir: str = ""
) -> list[Training]:
    """The runs of an experiment, all settings of the first seed first.

    Args:
      seeds: 1 to this.
      extra, env, logdir: see `configs`.
      steps: budget of a run in agent steps; 0: what `extra` says, or the experiment's.

    Raises:
      ConfigError: one line that names the fix.
    """
    planned = configs(experiment, extra, env, logdir, {"steps": experiment.steps})
    if steps:
        planned = {setting: dataclasses.replace(config, steps=steps) for setting, config in planned.items()}
    return [
        Training(
            setting,
            dataclasses.replace(config, name=run_name(experiment.name, setting, seed), seed=seed),
            experiment.minutes,
        )
        for seed in range(1, seeds + 1)
        for setting, config in planned.items()
    ]


def configs(
    experiment: Experiment, extra: Sequence[str], env: str, logdir: str, defaults: Mapping[str, Any]
) -> dict[str, Config]:
    """The configuration of each setting.

    Args:
      extra: training flags for all of them. Options of a task go to the settings that have this task.
      env: empty: what `extra` says, or the experiment's.
      logdir: folder of runs; empty: `runs/ENVIRONMENT`.
      defaults: fields, like the experiment's `common`.

    Raises:
      ConfigError: one line that names the fix.
    """
    chosen = {name: setting.fields for name, setting in experiment.settings.items()}
    named = (task for fields in chosen.values() for task in fields.get("tasks", ()))
    tasks = (*dict.fromkeys([*TASKS, *named]), _NO_TASK)  # all of them may be given options; nobody else says that
    common, extras = flags.from_flags(["train", "--tasks", ",".join(tasks), *extra])
    if extras.resume:
        raise ConfigError("--resume is not for the experiments: they go on by themselves")
    given = {field: value for field, value in extras.given.items() if (field, value) != ("tasks", tasks)}
    _check_extra(experiment.name, chosen, given)
    env = env or given.get("env") or experiment.env()
    fields = {name: value for name, value in (defaults | experiment.common).items() if name not in given}
    fields |= {"tasks": given.get("tasks", ()), "env": env}
    fields["logdir"] = logdir or str(Path("runs") / env.replace(":", "/").rpartition("/")[2])
    common = dataclasses.replace(common, **fields)
    return {name: _config(common, of) for name, of in chosen.items()}


def _check_extra(name: str, chosen: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]) -> None:
    for field, instead in _OWN.items():
        if field in given:
            raise ConfigError(f"--{field} is chosen by {instead}; leave it out after --")
    for setting, fields in chosen.items():
        for field, value in fields.items():
            if field in given and given[field] != value:
                raise ConfigError(f"{name} compares {field}: {setting} has {value!r}; leave --{field} out after --")


def _config(common: Config, fields: Mapping[str, Any]) -> Config:
    config = dataclasses.replace(common, **fields)
    return dataclasses.replace(config, task={task: config.task[task] for task in config.tasks if task in config.task})


def check(trainings: Sequence[Training]) -> None:
    """Raises ConfigError where a setting can't be trained or a run's name is taken by something else."""
    from gunreal.train import prepare

    for config in {training.setting: training.config for training in trainings}.values():
        prepare(config)
    for training in trainings:
        if not training.path.exists():
            continue
        if not (training.path / folders.CONFIG).is_file():
            raise ConfigError(f"{training.path} is there and is no run; choose another folder with --logdir")
        differences = _differences(folders.saved_config(training.path), training.config)
        if differences:
            there = ", ".join(f"{field} {old!r}" for field, (old, _) in differences.items())
            asked = ", ".join(f"{new!r}" for _, new in differences.values())
            raise ConfigError(f"{training.path} has {there}, not {asked}; choose another folder with --logdir")


def _differences(old: Config, new: Config) -> dict[str, tuple[Any, Any]]:
    pairs = {field: (getattr(old, field), getattr(new, field)) for field in vars(old) if field not in _WATCHING}
    return {field: (a, b) for field, (a, b) in pairs.items() if a != b}


def share(trainings: Sequence[Training], logdir: str | Path) -> list[Training]:
    """Gives runs of other experiments that are the same a second name; returns those that got one."""
    known = []
    for path in sorted(Path(logdir).glob(f"*/{folders.CONFIG}")):
        with contextlib.suppress(ConfigError):  # another version's
            saved = folders.saved_config(path.parent)
            other = Training("", dataclasses.replace(saved, logdir=str(logdir), name=path.parent.name))
            if not other.path.is_symlink() and (other.finished() or other.resumable()):
                known.append(other)
    shared = []
    for training in trainings:
        if training.path.is_symlink() and not training.path.exists():
            training.path.unlink()  # what it named was removed
        same = next((other for other in known if not _differences(other.config, training.config)), None)
        if same and not training.path.exists():
            training.path.symlink_to(same.config.name)
            shared.append(training)
    return shared
