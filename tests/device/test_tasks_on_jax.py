"""Runs the tests of device runs that have tasks, in a process where Keras uses JAX."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")
HERE = Path(__file__).parent


def test_tasks_on_jax():
    files = [str(HERE / f"test_{name}.py") for name in ("sequences", "saving", "program", "dqn", "same_update")]
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-n", "0", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
