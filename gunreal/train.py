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
from gunreal.config.derived import is_cluster, is_device
from gunreal.config.resolve import as_given, chosen
from gunreal.config.schema import FIELDS, Config, ConfigError
from gunreal.config.warning import waiting, warn
from gunreal.envs import dmlab_module
from gunreal.envs.apart import check_recorded
from gunreal.envs.make import why_fallback
from gunreal.envs.raw import Raw
from gunreal.envs.step import AgentFailure
from gunreal.experience.spec import Spec
from gunreal.learning import devices
from gunreal.learning.registry import interface, load_network
from gunreal.records import checkpoint, metrics, tracker
from gunreal.records import interface as saved_interface
from gunreal.runtime import memory, resuming, signals, starting
from gunreal.runtime.base import NotSaved
from gunreal.runtime.system import on_this_machine
from gunreal.tasks import registry
from gunreal.tasks.base import AuxiliaryTask
from gunreal.tasks.recorded import recorded_fields

if TYPE_CHECKING:
    from gunreal.run import Run
    from gunreal.runtime.base import BaseSystem, Runner
    from gunreal.runtime.ticker import OnMetrics, Ticker


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
      config: configuration of the run.
      given: the fields that the user has just set, as in `config.checks.check`.

    Raises:
      ConfigError: the run cannot start. The message is one line that names the fix.
    """
    check(config, given)
    devices.check_installed(config.backend)
    devices.check_loaded(config.backend)
    if is_device(config):
        devices.select_for(config)  # before an environment of the user loads JAX
    tracker.check(config)
    with devices.preferred(config.backend):
        tasks = registry.load_tasks(config.tasks, config.task)
    asked = config
    with waiting(f"{config.env} to open"):
        spec, raw, config = interface(config)
    check_images(asked, given, spec.is_image)
    if is_device(config):
        from gunreal.device.system import check_device

        check_device(config, spec, tasks)
    elif not config.cluster:  # whose machines have memories of their own
        memory.check(config, spec, tasks)
    with waiting(f"the first reset of {config.env}"):
        if config.env.startswith("dmlab/"):
            dmlab_module.try_reset(config)
        check_fit(config, spec, tasks)
    if reason := why_fallback(asked):
        warn(reason)
    recorded = recorded_fields(tasks, spec)
    if ignored := [name for name in raw.ignored if name not in recorded]:
        warn(f"learns from {raw.key!r}, and not from the other observations: {', '.join(ignored)}")
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
    """Raises ConfigError for the first task that does not fit the environment."""
    for task in tasks:
        try:
            task.check(spec)
        except ValueError as error:
            raise ConfigError(f"task {task.name!r} does not fit {config.env}: {error}") from error
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
        run stops as after Ctrl-C. It writes a checkpoint and a last line, with which the function is called, too. Other
        return values have no effect. An exception ends the run and is raised.

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
    if is_device(config):
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
                here = saved if is_cluster(saved) else on_this_machine(config)  # a cluster has several machines
                system = _system_class(here)(here, spec, tasks, run_dir, resumed)
                with contextlib.ExitStack() as on_error:
                    on_error.callback(system.close)
                    folders.save_started(saved, run_dir, chosen(saved, here))  # a refused resume changes nothing
                    saved_interface.save(run_dir, spec, raw)
                    resuming.warn_without_update(config, resumed)
                    on_error.pop_all()
                interruption.stops(system.stop)
                _run(system, show, on_metrics)
            except BaseException:
                if not resumed_dir and _is_unused(run_dir):
                    shutil.rmtree(run_dir, ignore_errors=True)  # so that the name can be used again
                raise
    return load(run_dir)


def _is_unused(run_dir: Path) -> bool:
    """Whether no step was taken."""
    file = run_dir / metrics.FILE
    return not (run_dir / "checkpoints").exists() and not (file.exists() and any(x["step"] for x in metrics.read(file)))


def _system_class(config: Config) -> Any:
    """The class of a run's parts: one machine's, or a cluster's."""
    if is_cluster(config):
        from gunreal.cluster.coordinator import Coordinator

        return Coordinator
    if is_device(config):
        from gunreal.device.system import DeviceSystem

        return DeviceSystem
    from gunreal.runtime.system import System

    return System


def _runner(system: Any) -> Any:
    """What moves the parts."""
    if is_cluster(system.config) or is_device(system.config):
        return system
    from gunreal.runtime.parallel import ParallelRunner
    from gunreal.runtime.serial import SerialRunner

    return SerialRunner(system) if system.config.serial else ParallelRunner(system)


def _run(system: BaseSystem, show: bool, on_metrics: OnMetrics | None) -> None:
    from gunreal.records.display import Display
    from gunreal.runtime.ticker import Ticker

    run: Runner | None = None
    ticker: Ticker | None = None
    with Display(system.config) if show else contextlib.nullcontext() as display:
        try:
            if display:
                display.message(f"training in {folders.short(system.run_dir)}")
            run = _runner(system)
            ticker = Ticker(system, run, display, on_metrics)
            run.run(ticker)
            ticker.wait()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and system.in_haste:
                run = None  # a second signal does not wait for the checkpoint
            system.fail(error)
        finally:
            _close(system, run, ticker)
        if display and not system.failure:
            display.message(system.ending())
    if system.failure:
        raise system.failure


def _close(system: BaseSystem, run: Runner | None, ticker: Ticker | None) -> None:
    """Writes a checkpoint and the last line of metrics, unless there is no `run`, and frees everything."""
    try:
        if run and ticker and (system.metrics.step or not system.failure):
            system.drain_episodes()
            if not (system.failure and system.config.serial):
                run.save()
            elif not checkpoint.exists(system.run_dir):
                # In mid-round, its agents cannot be saved. An earlier checkpoint has them, so that the run can go on.
                system.save_checkpoint(system.state())
            ticker.finish()
            if system.not_saved:
                system.fail(system.not_saved)
    except BaseException as error:
        system.fail(error)
    finally:
        with contextlib.closing(system):  # no process may stay
            if ticker:
                ticker.close()


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
        if is_device(config) and config.backend != "jax":
            raise ConfigError(f"device runs use JAX, not {config.backend}; use --backend jax, or --runner parallel")
        return config
    return dataclasses.replace(config, backend="jax" if is_device(config) else devices.usable(config.backend))


def command(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs `main` and ends the process."""
    code = main(argv)
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None if it is closed
        with contextlib.suppress(OSError):  # its reader is gone
            stream.flush()
    os._exit(code)  # a regular exit takes 2 s more to tear down TensorFlow


if __name__ == "__main__":
    command()
