"""The checkpoint from which a run is resumed."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

from gunreal.config.derived import steps_without_update
from gunreal.config.schema import Config, ConfigError
from gunreal.config.warning import warn
from gunreal.records import checkpoint, metrics


def start(config: Config, run_dir: Path) -> checkpoint.Checkpoint | None:
    """The checkpoint to resume from, or None if the run ended before its first one.

    Raises:
      ConfigError: no checkpoint is intact, the budget is used up, or the checkpoint does not fit the configuration.
    """
    if not checkpoint.exists(run_dir):
        _refuse_lost(run_dir)
        warn(f"{run_dir} has no checkpoint yet: it starts at step 0")
        return None
    resumed = checkpoint.load(run_dir)
    begin_anew = f"start a new run with --init {shlex.quote(str(run_dir))}"
    saved = resumed.extra["config"]
    kind = config.runner if config.runner in ("serial", "device") else ""
    if kind and not _has_agents(resumed):
        raise ConfigError(
            f"{resumed.path} lacks the agents of a {kind} run, as checkpoints of parallel runs and from the Hub do; "
            f"{begin_anew}"
        )
    for name in ("agents", "agents_per_process"):
        if kind and getattr(config, name) != saved[name]:
            raise ConfigError(f"a {kind} run cannot change {name} from {saved[name]}; leave {name} out")
    if not resumed.is_whole():
        raise ConfigError(f"{resumed.path} has a policy only, as agents of the zoo do; {begin_anew}")
    if resumed.step >= config.steps:
        taken = f"{resumed.step:,} of {config.steps:,} steps"
        raise ConfigError(f"{run_dir} has already taken {taken}; raise the budget with --steps")
    return resumed


def _has_agents(resumed: checkpoint.Checkpoint) -> bool:
    """Whether a checkpoint has the agents of a serial or a device run, without which neither goes on exactly."""
    return "serial" in resumed.blobs or any(name.startswith(checkpoint.DEVICE) for name in resumed.state)


def warn_without_update(config: Config, resumed: checkpoint.Checkpoint | None) -> None:
    """Warns if the run is to end before its first update. Such a run may still be a test of its settings.

    A device run takes whole turns, and a resumed serial run goes on with the rollouts that it had begun. A run with
    processes takes a few steps beyond its budget, so that it may do an update nevertheless.
    """
    if config.runner == "device" or (config.runner == "serial" and resumed):
        return
    left, needed = config.steps - (resumed.step if resumed else 0), steps_without_update(config)
    if left <= needed:
        warn(
            f"{left:,} agent steps are too few to learn from, because the first batch takes more than {needed:,}; "
            "raise --steps, or lower --agents, --t_max or --min_batch"
        )


def _refuse_lost(run_dir: Path) -> None:
    """Raises ConfigError if the checkpoints are gone, because a start at step 0 would erase the metrics.

    The first checkpoint follows the first line of metrics with steps. A run that is killed between them, or fails
    before, has one such line and no checkpoint.
    """
    lines = []
    with contextlib.suppress(OSError, ValueError):  # there are no metrics, or their writer will refuse them
        lines = [line for line in metrics.read(run_dir / metrics.FILE) if line["step"]]
    if len(lines) > 1 or any(line.get("stopped_by", "error") != "error" for line in lines):
        taken = f"{lines[-1]['step']:,} steps"
        raise ConfigError(f"{run_dir} has taken {taken} but has no checkpoint; put one back, or start a new run")
