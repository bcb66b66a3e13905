"""`gunreal train`: trains a policy, shows progress and writes the results to `runs/<name>/`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from gunreal.config import flags, folders, plugins
from gunreal.config.checks import check, check_images
from gunreal.config.objective import load_objective
from gunreal.config.resolve import as_given, chosen
from gunreal.config.schema import FIELDS, Config, ConfigError
from gunreal.config.warning import waiting, warn
from gunreal.envs import dmlab_module
from gunreal.envs.apart import check_recorded
from gunreal.envs.atari import why_ale
from gunreal.envs.raw import Raw
from gunreal.envs.step import AgentFailure
from gunreal.experience.spec import Spec
from gunreal.learning import devices
from gunreal.learning.registry import interface, load_network
from gunreal.learning.task import AuxiliaryTask, of_tasks
from gunreal.records import checkpoint, metrics, recordings
from gunreal.records import interface as saved_interface
from gunreal.runtime import memory, resuming, signals, starting
from gunreal.runtime.base import Runner
from gunreal.runtime.parallel import ParallelRunner
from gunreal.runtime.serial import SerialRunner
from gunreal.runtime.system import on_this_machine
from gunreal.runtime.training import NotSaved, OnMetrics, Training
from gunreal.tasks import recommended, registry
from gunreal.tasks.recorded import recorded_fields

if TYPE_CHECKING:
    from gunreal.run import Run


class Prepared(NamedTuple):
    """What `prepare` finds: the environment's interface, the tasks, and the raw observations and actions.

    Attributes:
      config: the resolved configuration. Settings of the machine other than the emulator may still be "auto".
    """

    spec: Spec
    tasks: tuple[AuxiliaryTask, ...]
    raw: Raw
    config: Config


def prepare(config: Config, given: Collection[str] = frozenset(FIELDS)) -> Prepared:
    """Checks the configuration, the tasks and the environment before anything starts.

    Args:
      given: the fields that the user has just set, as in `config.checks.check`.

    Raises:
      ConfigError: the run cannot start. The message is one line that names the fix.
    """
    check(config, given)
    devices.check_installed(config.backend)
    devices.check_loaded(config.backend)
    if config.runner == "device":
        devices.select_for(config)  # before an environment of the user loads JAX
    config = recommended.chosen(config)
    with devices.preferred(config.backend):
        tasks = registry.load_tasks(config.tasks, config.task)
    asked = config
    with waiting(f"{config.env} to open"):
        spec, raw, config = interface(config)
        spec = of_tasks(spec, tasks)
    check_images(asked, given, spec.is_image)
    if config.runner == "device":
        from gunreal.device.runner import check_device

        check_device(config, spec, tasks)
    elif config.runner != "cluster" or not config.address:  # other machines have memories of their own
        memory.check(config, spec, tasks)
    with waiting(f"the first reset of {config.env}"):
        if config.env.startswith("dmlab/"):
            dmlab_module.try_reset(config)
        check_fit(config, spec, tasks)
    if reason := why_ale(asked):
        warn(reason)
    recorded = recorded_fields(tasks, spec)
    if ignored := [name for name in raw.ignored if name not in recorded]:
        used = " and ".join(map(repr, (raw.key, *raw.vectors)))
        warn(f"learns from {used}, and not from the other observations: {', '.join(ignored)}")
    return Prepared(spec, tasks, raw, _complete(config, spec, tasks))


def _complete(config: Config, spec: Spec, tasks: Sequence[AuxiliaryTask]) -> Config:
    """The configuration with all options of its tasks and its network, whatever their defaults will be later."""
    network = plugins.options(load_network(config, spec))
    return dataclasses.replace(
        config,
        task={task.name: plugins.options(task) for task in tasks},
        network_args={name: value for name, value in network.items() if name not in FIELDS},
    )


def check_fit(config: Config, spec: Spec, tasks: Sequence[AuxiliaryTask]) -> None:
    """Raises ConfigError for the first task that does not fit the environment or the objective."""
    objective = load_objective(config)
    epochs = 1 if objective.replays else objective.uses().epochs
    for task in tasks:
        try:
            task.check(spec)
        except ValueError as error:
            raise ConfigError(f"task {task.name!r} does not fit {config.env}: {error}") from error
        if path := task.source(spec):
            if task.bootstrap is not None or task.prioritized:
                what = "no priorities" if task.prioritized else "no bootstrap"
                raise ConfigError(f"task {task.name!r} learns from a recording, so it has {what}; remove that")
            recordings.load(path, spec)
        if spec.bonus_discount and task.bonus is not None and not objective.values_bonuses:
            fix = "use --objective ppo, or set bonus_discount to 0"
            raise ConfigError(
                f"task {task.name!r} has a bonus_discount, but {objective.name} has no value for it; {fix}"
            )
        if task.updates > epochs:
            times = "once; set updates to 1, or use --objective ppo" if epochs == 1 else f"{epochs} times; lower it"
            used = f"{objective.name} uses a batch {times}"
            raise ConfigError(f"task {task.name!r} has updates = {task.updates}, but {used}")
        if (length := task.length(spec.t_max)) > config.replay_size:
            raise ConfigError(
                f"replay_size {config.replay_size} is below the {length} steps of a sequence of task {task.name!r}; "
                f"use --replay_size {length} or more"
            )
    check_recorded(config, recorded_fields(tasks, spec).values())


def train(config: Config, *, show: bool = True, on_metrics: OnMetrics | None = None) -> Run:
    """Trains until the budget is used up, or until SIGINT, SIGTERM or SIGHUP.

    Args:
      config: configuration of the run.
      show: whether to show progress on standard output.
      on_metrics: function that is called with each line of metrics, a dict, in the main thread. If it returns True, the
        run stops. It writes a checkpoint, waits for its evaluations, and writes a last line, with which the function is
        called, too. Other return values have no effect. An exception ends the run and is raised.

    Returns:
      The run, as returned by `gunreal.load`.

    Raises:
      ConfigError: the configuration is invalid. Nothing has been started.
      TypeError: `on_metrics` is not a function. Nothing has been started.
      AgentFailure: the environment keeps failing, or a task fails.
      OSError: the last checkpoint could not be written.
      KeyboardInterrupt: a signal came before training began, or a second Ctrl-C before the run had ended. The
        latter saves nothing.
    """
    return _train(config, None, FIELDS, show, on_metrics)


def resume(run: str | Path | Run, *, show: bool = True, on_metrics: OnMetrics | None = None, **overrides: Any) -> Run:
    """Resumes a run from its newest checkpoint. A run that ended before its first one starts at step 0.

    Args:
      run: folder or name of the run, or a `Run`.
      show: whether to show progress on standard output.
      on_metrics: as in `train`.
      **overrides: new values for fields of the configuration, such as `steps=2_000_000`. They are saved with the run.
        `logdir` is the folder in which a name is looked up. With `task={"pc": {"weight": 0.05}}`, the other options of
        the tasks keep their values.

    Returns:
      The run, as returned by `gunreal.load`.

    Raises:
      ConfigError: the run does not exist, its checkpoints are gone, its budget is used up, another process trains it,
        or an override changes its environment, network or learning, or more of its tasks than their weights.
      AgentFailure: the environment keeps failing, or a task fails.
      OSError: the last checkpoint could not be written.
      TypeError, KeyboardInterrupt: as in `train`.
    """
    from gunreal.run import Run

    name = str(run.path if isinstance(run, Run) else run)
    run_dir = folders.find(name, overrides.pop("logdir", Config.logdir))
    return _train(folders.resume_config(run_dir, overrides), run_dir, (), show, on_metrics)


def _train(
    config: Config,
    resumed_dir: Path | None,
    given: Collection[str],
    show: bool = True,
    on_metrics: OnMetrics | None = None,
) -> Run:
    """Trains a new run, or resumes the one in `resumed_dir`. `given` are the fields that the user has just set."""
    from gunreal.run import load

    if on_metrics is not None and not callable(on_metrics):
        raise TypeError(f"on_metrics is {on_metrics!r}, but must be a function that takes a line of metrics")
    if config.init and not resumed_dir:
        starting.find(config)  # before this run has a folder, which would be found as well
    if config.runner == "device":
        config = dataclasses.replace(config, backend="jax")
    asked = config
    spec, tasks, raw, config = prepare(config, given)
    saved = as_given(config, asked)
    with signals.handled() as interruption:
        run_dir = resumed_dir or folders.prepare_run_dir(saved)
        with folders.locked(run_dir):
            resumed = resuming.start(config, run_dir) if resumed_dir else None
            try:
                saved, config = (dataclasses.replace(each, name=run_dir.name) for each in (saved, config))
                here = saved if saved.runner == "cluster" else on_this_machine(config)  # a cluster has several machines
                with contextlib.ExitStack() as on_error:
                    runner = make_runner(here, spec, tasks, resumed)
                    on_error.callback(runner.close)
                    training = Training(saved, runner, run_dir, show, on_metrics)
                    on_error.pop_all()  # the run closes its runner
                    on_error.callback(training.close)
                    with folders.writing(run_dir):  # only now, because a refused resume changes nothing
                        folders.save_config(saved, run_dir, chosen(saved, here))
                        saved_interface.save(run_dir, spec, raw)
                    resuming.warn_without_update(config, resumed)
                    on_error.pop_all()
                interruption.stops(runner.status.stop)
                training.run()
            except BaseException:
                if not resumed_dir and _is_unused(run_dir):
                    shutil.rmtree(run_dir, ignore_errors=True)  # so that the name can be used again
                raise
    return load(run_dir)


def _is_unused(run_dir: Path) -> bool:
    """Whether no step was taken."""
    return not (run_dir / "checkpoints").exists() and not any(line["step"] for line in metrics.lines(run_dir))


def make_runner(
    config: Config, spec: Spec, tasks: tuple[AuxiliaryTask, ...], resumed: checkpoint.Checkpoint | None
) -> Runner:
    """The runner of a run. What loads Ray or JAX is imported for the runs that need it."""
    if config.runner == "cluster":
        from gunreal.cluster.coordinator import Coordinator

        return Coordinator(config, spec, tasks, resumed)
    if config.runner == "device":
        from gunreal.device.runner import DeviceRunner

        return DeviceRunner(config, spec, tasks, resumed)
    kind = SerialRunner if config.runner == "serial" else ParallelRunner
    return kind.of(config, spec, tasks, resumed)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 0 for success, 1 if training failed, 2 for invalid input."""
    try:
        config, extras = flags.from_flags(argv or ["python -m gunreal.train", *sys.argv[1:]])
        if not extras.resume:
            config = with_backend(config, extras.chosen)
        _train(config, extras.resume, extras.chosen)
    except (ConfigError, AgentFailure, NotSaved) as error:
        warn(str(error))
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt as error:
        warn("interrupted")
        return 128 + (error.number if isinstance(error, signals.Interrupted) else signal.SIGINT)
    return 0


def with_backend(config: Config, chosen: Collection[str]) -> Config:
    """The configuration with a backend that is installed, unless the user has chosen one."""
    if "backend" in chosen:
        if config.runner == "device" and config.backend != "jax":
            raise ConfigError(f"device runs use JAX, not {config.backend}; use --backend jax, or --runner parallel")
        return config
    return dataclasses.replace(config, backend="jax" if config.runner == "device" else devices.usable(config.backend))


def command(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs `main` and ends the process."""
    code = main(argv)
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None if it is closed
        with contextlib.suppress(OSError):  # its reader is gone
            stream.flush()
    os._exit(code)  # a regular exit takes 2 s more to tear down TensorFlow


if __name__ == "__main__":
    command()
