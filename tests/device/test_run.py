"""Device runs as a user sees them: reproducible, resumed exactly, evaluated and stopped by a signal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from training import Training

from gunreal import load
from gunreal.records import checkpoint

pytest.importorskip("jax")
pytestmark = pytest.mark.timeout(900)  # some tests start programs
# Runs of the scripted environments, one after the other in one process, which takes less time than one program each.
PROGRAM = """
import json, sys
import gunreal
folder = sys.argv[1]
common = dict(runner="device", env="scripted_functional:make", env_args={"script": "---T -t ----t"}, agents=4, t_max=4)
common |= dict(logdir=folder, hidden=8, learning_rate_end=5e-4)
found = {}
for name, kind in {"a3c": dict(algorithm="a3c", device_batches=2), "ppo": dict(ppo_minibatches=2)}.items():
    first = gunreal.train(gunreal.Config(**common, **kind, steps=160, name=name), show=False)
    part = gunreal.train(gunreal.Config(**common, **kind, steps=80, name=name + "-part"), show=False)
    before = part.metrics[-1]
    resumed = gunreal.resume(part, show=False, steps=160)
    hashes = [line["weights_sha256"] for line in (first.metrics[-1], before, resumed.metrics[-1])]
    found[name] = dict(hashes=hashes, half=before["step"], last=resumed.metrics[-1])
found["scores"] = first.evaluate(3).tolist()
try:
    gunreal.train(gunreal.Config(**common, tasks=("vr",)), show=False)
except gunreal.ConfigError as error:
    found["refused"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What the program found, and the folder of its runs."""
    folder = tmp_path_factory.mktemp("runs")
    support = str(Path(__file__).parents[1] / "support")
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {[support, *sys.path]}\n{PROGRAM}", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), folder


@pytest.mark.parametrize("name", ["a3c", "ppo"])
def test_a_resumed_run_equals_one_that_was_not_stopped(runs, name):
    found = runs[0][name]
    first, before, resumed = found["hashes"]
    assert found["half"] == 80
    assert resumed == first != before


@pytest.mark.parametrize("name", ["a3c", "ppo"])
def test_it_leaves_what_other_runs_leave(runs, name):
    found, folder = runs
    last = found[name]["last"]
    assert last["step"] == 160 and last["stopped_by"] == "steps" and last["episodes"] > 0
    assert last["agents"] == 4 and last["trained"] == (156 if name == "a3c" else 160)
    run = load(folder / name)
    assert run.config.backend == "jax" and run.spec.frame == (3,)
    saved = checkpoint.load(run.path)
    assert set(saved.learned()) < set(saved.state) and "weights/policy/kernel" in saved.learned()


def test_it_is_evaluated(runs):
    assert len(runs[0]["scores"]) == 3


def test_tasks_are_refused(runs):
    assert runs[0]["refused"] == "task 'vr' cannot run on a device; leave it out or use --runner parallel"


def test_ctrl_c_saves_a_checkpoint(tmp_path):
    """SIGINT between two turns of Catch."""
    flags = "--runner device --env gunreal/Catch-v0 --agents 2 --t_max 4 --network mlp --hidden 4 --algorithm a3c"
    with Training(tmp_path, *flags.split(), "--metrics_seconds", 0.5) as run:
        run.wait_for(lambda lines: lines[-1]["updates"])
        assert run.signal(signal.SIGINT, 60) == 0
        assert run.lines()[-1]["stopped_by"] == "SIGINT" and run.checkpoints()
