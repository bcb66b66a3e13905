"""The training rate of runs, with a small run on the CPU and a program in the place of the training."""

from __future__ import annotations

import sys

import pytest
from measuring import training_rate

PROGRAM = """#!{python}
import json, pathlib, sys, time
flags = dict(flag.split("=", 1) for flag in sys.argv[3:])
folder = pathlib.Path(flags["--logdir"]) / "run"
folder.mkdir()
with (folder / "metrics.jsonl").open("w") as file:
    for k, rate in enumerate([0, 1, 2, 30, 50]):
        line = {{"tps": rate * int(flags["--agents"]), "seconds": 1.5 * k, "updates": 3 * k}}
        print(json.dumps(line), file=file, flush=True)
    file.write('{{"tps": 1')
    file.flush()
    time.sleep(600)
"""


def test_the_rate_is_that_after_the_first_lines(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setattr(training_rate.sys, "executable", str(program))
    monkeypatch.setattr(training_rate, "_gpu_use", lambda: [80.0])
    found = training_rate.training_rate({"env": "x", "agents": 10}, 1.0, 60.0)
    assert found == {"steps": 400.0, "updates": 2.0, "start": 1.5, "gpu": [80.0, 80.0]}


def test_a_run_that_fails_tells_its_last_line():
    pytest.importorskip("jax")
    with pytest.raises(RuntimeError, match="NoSuchGame"):
        training_rate.training_rate({"runner": "device", "env": "ALE/NoSuchGame-v5", "agents": 4}, 1.0, 120.0)
