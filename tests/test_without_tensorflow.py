"""Where TensorFlow is not installed, JAX does everything."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from trained import catch_run

from gunreal import load

NAMED = "gunreal: tensorflow is not installed; this program uses jax instead"
FLAGS = "--env gunreal/Catch-v0 --tasks pc --steps 200 --agents 2 --agents_per_process 2 --hidden 8 --frame_size 36"


@pytest.fixture(scope="module")
def gunreal(tmp_path_factory):
    """Runs the command in a folder, without TensorFlow: in Python, and in all processes that it starts."""
    pytest.importorskip("jax")
    folder = tmp_path_factory.mktemp("hidden")
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['tensorflow'] = None\n")
    path = os.pathsep.join([str(folder), *sys.path])
    env = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"} | {"PYTHONPATH": path}

    def run(*words: str, program: tuple[str, ...] = ("-m", "gunreal")) -> subprocess.CompletedProcess:
        command = [sys.executable, *program, *words]
        return subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder)

    run.folder = folder
    return run


def test_a_run_picks_jax_says_so_once_and_resumes(gunreal):
    trained = gunreal("train", *FLAGS.split(), "--name", "catch", "--min_batch", "20", "--t_max", "5")
    assert trained.returncode == 0, trained.stderr
    assert trained.stderr.splitlines().count(NAMED) == 1
    run = load(gunreal.folder / "runs" / "catch")
    assert run.config.backend == "jax"
    resumed = gunreal("resume", "catch", "--steps", "300")
    assert resumed.returncode == 0, resumed.stderr
    assert NAMED not in resumed.stderr and run.metrics[-1]["step"] >= 300


def test_a_run_of_tensorflow_is_evaluated_with_jax(gunreal, tmp_path_factory):
    done = gunreal("evaluate", str(catch_run(tmp_path_factory.getbasetemp())), "--episodes", "2")
    assert done.returncode == 0, done.stderr
    assert NAMED in done.stderr.splitlines() and "gunreal/Catch-v0, at step 4" in done.stdout


def test_tasks_are_checked_with_jax(gunreal):
    program = "from gunreal import testing; from gunreal.tasks.value_replay import ValueReplay as Task"
    done = gunreal(program=("-c", f"{program}; testing.check_task(Task)"))
    assert done.returncode == 0, done.stderr


def test_asking_for_tensorflow_names_the_fix(gunreal):
    done = gunreal("train", *FLAGS.split(), "--backend", "tensorflow")
    assert done.returncode == 2 and done.stdout == ""
    message = "the backend tensorflow is not installed; run pip install tensorflow, or use another backend: jax"
    assert done.stderr == f"gunreal: {message}\n"
