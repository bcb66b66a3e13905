from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "continuation.py"


def run(*flags):
    command = [sys.executable, str(TOOL), "--env", "gunreal/Catch-v0", *flags]
    environment = {**os.environ, "PYTHONPATH": str(TOOL.parents[1])}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_both_ways_have_the_same_gradient(backend):
    pytest.importorskip(backend)
    done = run("--predict", "4", "--train", "12", "--rounds", "1", "--backend", backend)
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"gradients differ by (\S+)", done.stdout)[1]) < 1e-4
    two, one = (float(x) for x in re.findall(r"= ([\d.]+) ms", done.stdout))
    assert two > 0 and one > 0
