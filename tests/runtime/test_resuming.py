from __future__ import annotations

import json

import pytest

from gunreal.config.schema import Config, ConfigError
from gunreal.records import metrics
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
    write(tmp_path, *lines)
    assert resuming.start(Config(), tmp_path) is None
    assert "has no checkpoint yet: it starts at step 0" in capsys.readouterr().err


def test_a_run_without_metrics_starts_again(tmp_path):
    assert resuming.start(Config(), tmp_path) is None
