"""The runs of an experiment and their progress.

A run has finished if the last line of its metrics says `stopped_by: steps`, or if it ended properly at its time limit.
Otherwise it resumes from its newest checkpoint. If another experiment already has a run with the same configuration,
the run is not trained again, but becomes a symbolic link to the other run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.command_line import with_task_share

from experiments.jobs import Job
from experiments.table import FOREVER, TASKS, Experiment, LearningExperiment
from gunreal.config import flags, folders
from gunreal.config.derived import is_device
from gunreal.config.files import save
from gunreal.config.schema import Config, ConfigError

# Fields that may differ between an existing run and the requested one.
_WATCHING = ("name", "logdir", "checkpoint_minutes", "keep_checkpoints", "metrics_seconds", "memory_limit")
_NO_TASK = "-"
_OWN = {"seed": "--seeds", "name": "the experiment's name", "logdir": "--logdir"}


@dataclasses.dataclass(frozen=True)
class Training(Job):
    """A run of an experiment: one setting with one seed.

    Attributes:
      setting: name of the setting.
      config: configuration, with the name of the run and the folder of runs.
      minutes, score: see `Job`.
    """

    setting: str
    config: Config
    minutes: float = math.inf
    score: float = math.inf

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.config.name

    @property
    def steps(self) -> int:
        """The budget in agent steps."""
        return self.config.steps

    @property
    def path(self) -> Path:
        """The folder of the run, which need not exist."""
        return Path(self.config.logdir) / self.config.name

    def prepare(self) -> None:
        """Writes the configuration of the setting."""
        self.settings_file.parent.mkdir(parents=True, exist_ok=True)
        save(dataclasses.replace(self.config, name="", seed=Config.seed), self.settings_file)

    def resumable(self) -> bool:
        """Whether the run has a checkpoint to continue from."""
        return any((self.path / "checkpoints").glob("step_*.npz"))

    def command(self) -> list[str]:
        """Returns the command that starts or resumes the training."""
        program = [sys.executable, "-m", "gunreal.train"]
        if self.resumable():
            return [*program, "--resume", str(self.path)]
        where = ["--logdir", self.config.logdir, "--name", self.config.name]
        return [*program, "--config", str(self.settings_file), *where, "--seed", str(self.config.seed)]

    @property
    def settings_file(self) -> Path:
        """The TOML file with the configuration of the setting, `EXPERIMENT-SETTING.toml` beside the runs."""
        return self.path.with_name(self.config.name.rpartition("-s")[0] + ".toml")


def budget(steps: int, minutes: float) -> str:
    """Describes the length of a run in words."""
    words = [f"{minutes:g} min"] if math.isfinite(minutes) else []
    return ", or ".join([*words, f"{steps:,} agent steps"] if steps < FOREVER or not words else words)


def run_name(experiment: str, setting: str, seed: int | str) -> str:
    """Returns the name of a run."""
    return f"{experiment}-{setting}-s{seed}"


def plan(
    experiment: LearningExperiment, seeds: int, extra: Sequence[str], env: str = "", steps: int = 0, logdir: str = ""
) -> list[Training]:
    """Returns the runs of an experiment, ordered by seed and then by setting.

    Args:
      experiment: the experiment.
      seeds: number of seeds.
      extra, env, logdir: see `configs`.
      steps: length of a run in agent steps. 0 stands for the value in `extra` or the experiment's default.

    Raises:
      ConfigError: a flag or setting is invalid.
    """
    planned = configs(experiment, extra, env, logdir, {"steps": experiment.steps})
    if steps:
        planned = {setting: dataclasses.replace(config, steps=steps) for setting, config in planned.items()}
    return [
        Training(
            setting,
            dataclasses.replace(config, name=run_name(experiment.name, setting, seed), seed=seed),
            experiment.minutes,
            experiment.goal,
        )
        for seed in range(1, seeds + 1)
        for setting, config in planned.items()
    ]


def configs(
    experiment: Experiment, extra: Sequence[str], env: str, logdir: str, defaults: Mapping[str, Any]
) -> dict[str, Config]:
    """Returns the configuration of each setting.

    Args:
      experiment: the experiment.
      extra: training flags for all settings. Options of a task only apply to settings with this task.
      env: the environment. An empty string stands for the one in `extra` or the experiment's default.
      logdir: the folder of runs. An empty string stands for `runs/ENVIRONMENT`.
      defaults: fields with less priority than those in `experiment.common`.

    Raises:
      ConfigError: a flag or setting is invalid.
    """
    chosen = {name: setting.fields for name, setting in experiment.settings.items()}
    named = (task for fields in chosen.values() for task in fields.get("tasks", ()))
    tasks = (*dict.fromkeys([*TASKS, *named]), _NO_TASK)  # options of all tasks are valid; _NO_TASK marks this default
    common, extras = flags.from_flags(["train", "--tasks", ",".join(tasks), *extra])
    if extras.resume:
        raise ConfigError("--resume can't be used after --; experiments continue by themselves, so leave it out")
    given = {field: value for field, value in extras.given.items() if (field, value) != ("tasks", tasks)}
    _check_extra(experiment.name, chosen, given)
    env = env or given.get("env") or experiment.env()
    fields = {name: value for name, value in (defaults | experiment.common).items() if name not in given}
    fields |= {"tasks": given.get("tasks", ()), "env": env}
    fields["logdir"] = logdir or str(Path("runs") / env.replace(":", "/").rpartition("/")[2])
    common = dataclasses.replace(common, **fields)
    planned = with_task_share({name: _config(common, of) for name, of in chosen.items()})
    return {name: with_backend(config, given) for name, config in planned.items()}


def with_backend(config: Config, given: Collection[str]) -> Config:
    """Returns the configuration that a run saves, which has the backend jax on devices unless another one is given."""
    return dataclasses.replace(config, backend="jax") if is_device(config) and "backend" not in given else config


def _check_extra(name: str, chosen: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]) -> None:
    for field, instead in _OWN.items():
        if field in given:
            raise ConfigError(f"--{field} is set by {instead}; leave it out after --")
    for setting, fields in chosen.items():
        for field, value in fields.items():
            if field in given and given[field] != value:
                raise ConfigError(f"setting {setting} of {name} has {field} {value!r}; leave --{field} out after --")


def _config(common: Config, fields: Mapping[str, Any]) -> Config:
    config = dataclasses.replace(common, **fields)
    if any(":" in task for task in config.tasks):  # the name of such a task is unknown until it is loaded
        return config
    return dataclasses.replace(config, task={task: config.task[task] for task in config.tasks if task in config.task})


def check(trainings: Sequence[Training]) -> None:
    """Raises ConfigError if a setting can't be trained or the folder of a run contains something else."""
    from gunreal.train import prepare

    # The runs of a setting differ in the seed, and in the game if the experiment has several.
    for config in {(training.setting, training.config.env): training.config for training in trainings}.values():
        prepare(config)
    for training in trainings:
        if not training.path.exists():
            continue
        if not (training.path / folders.CONFIG).is_file():
            raise ConfigError(f"{training.path} exists and is not a run; choose another folder with --logdir")
        differences = _differences(folders.saved_config(training.path), training.config)
        if differences:
            there = ", ".join(f"{field} {old!r}" for field, (old, _) in differences.items())
            asked = ", ".join(f"{new!r}" for _, new in differences.values())
            raise ConfigError(f"{training.path} has {there}, not {asked}; choose another folder with --logdir")


def _differences(old: Config, new: Config) -> dict[str, tuple[Any, Any]]:
    pairs = {field: (getattr(old, field), getattr(new, field)) for field in vars(old) if field not in _WATCHING}
    return {field: (a, b) for field, (a, b) in pairs.items() if a != b}


def share(trainings: Sequence[Training], logdir: str | Path) -> list[Training]:
    """Links runs to existing runs of other experiments with the same configuration, and returns the linked runs."""
    known = []
    for path in sorted(Path(logdir).glob(f"*/{folders.CONFIG}")):
        with contextlib.suppress(ConfigError):  # a configuration of another version can't be compared
            saved = folders.saved_config(path.parent)
            other = Training("", dataclasses.replace(saved, logdir=str(logdir), name=path.parent.name))
            if not other.path.is_symlink() and (other.finished() or other.resumable()):
                known.append(other)
    shared = []
    for training in trainings:
        if training.path.is_symlink() and not training.path.exists():
            training.path.unlink()  # its target has been removed
        same = next((other for other in known if not _differences(other.config, training.config)), None)
        if same and not training.path.exists():
            training.path.symlink_to(same.config.name)
            shared.append(training)
    return shared
