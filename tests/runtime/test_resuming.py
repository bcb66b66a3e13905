from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import gunreal
from gunreal.config.schema import Config, ConfigError
from gunreal.records import checkpoint, metrics
from gunreal.runtime import resuming


def write(run_dir, *lines):
    (run_dir / metrics.FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    "lines",
    [
        [{"step": 0}, {"step": 30}, {"step": 60}],  # it was killed later
        [{"step": 60, "stopped_by": "steps"}],  # its end came before the first line was due
    ],
)
def test_a_run_whose_checkpoints_are_gone_keeps_its_metrics(tmp_path, lines):
    write(tmp_path, *lines)
    with pytest.raises(
        ConfigError, match="has taken 60 steps but has no checkpoint; put one back, or start a new run$"
    ):
        resuming.start(Config(), tmp_path)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [{"step": 0}, {"step": 0, "stopped_by": "SIGINT"}],
        [{"step": 0}, {"step": 30}],  # killed before the first checkpoint, which follows this line
        [{"step": 0}, {"step": 30, "stopped_by": "error"}],  # a serial run that fails saves no checkpoint
    ],
)
def test_a_run_that_ended_before_its_first_checkpoint_starts_again(tmp_path, capsys, lines):
    assert resuming.start(Config(), tmp_path) is None  # it has no metrics either
    write(tmp_path, *lines)
    assert resuming.start(Config(), tmp_path) is None
    assert "has no checkpoint yet: it starts at step 0" in capsys.readouterr().err


@pytest.mark.parametrize(("fields", "kind"), [({"runner": "serial"}, "serial"), ({"runner": "device"}, "device")])
def test_a_checkpoint_from_the_hub_has_no_agents_to_resume(tmp_path, fields, kind):
    config, run_dir = Config(**fields), tmp_path / "a run"
    path = checkpoint.save(run_dir, 10, {"weights/policy/bias": np.zeros(2)}, {"config": dataclasses.asdict(config)})
    with pytest.raises(ConfigError) as found:
        resuming.start(config, run_dir)
    assert str(found.value) == (
        f"{path} lacks the agents of a {kind} run, as checkpoints of parallel runs and from the Hub do; "
        f"start a new run with --init '{run_dir}'"
    )


@pytest.mark.parametrize(
    ("fields", "resumed_at", "warned"),
    [
        ({"steps": 15}, None, True),
        ({"steps": 16}, None, False),
        ({"steps": 115}, 100, True),
        ({"steps": 116}, 100, False),
        ({"steps": 15, "runner": "serial"}, None, True),
        ({"steps": 105, "runner": "serial"}, 100, False),  # it goes on with the rollouts that it had begun
        ({"steps": 1, "runner": "device"}, None, False),
    ],
)
def test_a_run_without_an_update_is_warned_about(capsys, fields, resumed_at, warned):
    resumed = None if resumed_at is None else checkpoint.Checkpoint({}, {}, {}, Path("x.npz"), resumed_at, None)
    resuming.warn_without_update(Config(agents=3, t_max=4, min_batch=12, **fields), resumed)
    line = (
        "gunreal: 15 agent steps are too few to learn from, because the first batch takes more than 15; raise --steps"
    )
    assert capsys.readouterr().err.startswith(line) == warned


@pytest.mark.parametrize(("steps", "updates"), [(15, 0), (16, 1)])
def test_the_number_of_steps_without_an_update_is_exact(tmp_path, capfd, steps, updates):
    options = {"env": "CartPole-v1", "objective": "a3c", "agents": 3, "t_max": 4, "min_batch": 12, "hidden": 4}
    config = Config(**options, runner="serial", steps=steps, logdir=str(tmp_path))
    run = gunreal.train(config, show=False)
    assert run.metrics[-1]["updates"] == updates
    assert ("too few to learn from" in capfd.readouterr().err) == (not updates)
