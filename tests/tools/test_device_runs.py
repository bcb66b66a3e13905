"""The training rate of device runs, with a small run on the CPU and a program in the place of the training."""

from __future__ import annotations

import sys

import pytest
from measuring import device_runs

PROGRAM = """#!{python}
import json, pathlib, sys, time
flags = dict(flag.split("=", 1) for flag in sys.argv[3:])
folder = pathlib.Path(flags["--logdir"]) / "run"
folder.mkdir()
with (folder / "metrics.jsonl").open("w") as file:
    for k, rate in enumerate([0, 1, 2, 30, 50]):
        print(json.dumps({{"tps": rate * int(flags["--agents"]), "seconds": 1.5 * k}}), file=file, flush=True)
    file.write('{{"tps": 1')
    file.flush()
    time.sleep(600)
"""


def test_the_rate_is_that_after_the_first_lines(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setattr(device_runs.sys, "executable", str(program))
    assert device_runs.device_run("x", 10, 1.0, 60.0) == {"steps": 400.0, "start": 1.5}


def test_a_run_that_fails_tells_its_last_line():
    pytest.importorskip("jax")
    with pytest.raises(RuntimeError, match="NoSuchGame"):
        device_runs.device_run("ALE/NoSuchGame-v5", 4, 1.0, 120.0)
