"""Device runs as a user sees them: reproducible, resumed exactly, evaluated and stopped by a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from training import Training

from gunreal import load
from gunreal.records import checkpoint

pytest.importorskip("jax")
# Runs of the scripted environments, one after the other in one process, which takes less time than one program each.
PROGRAM = """
import json, sys
import gunreal
folder = sys.argv[1]
common = dict(runner="device", env="scripted_functional:make", env_args={"script": "---T -t ----t"}, agents=8, t_max=4)
common |= dict(logdir=folder, learning_rate_end=5e-4)
def train(name, steps=320, **options):
    return gunreal.train(gunreal.Config(**common, steps=steps, name=name, **options), show=False)

found = {}
tasks = dict(tasks=("vr",), replay_size=40, hidden=8)
ppo = dict(device_batches=2, objective_args={"minibatches": 2}, **tasks)
first, part = train("ppo", **ppo), train("part", steps=160, **ppo)
before = part.metrics[-1]["weights_sha256"]
gunreal.resume(part, show=False, steps=320)
found["ppo"] = [run.metrics[-1]["weights_sha256"] for run in (first, gunreal.load(part.path))] + [before]
dqn = dict(objective="dqn", device_batches=2, **tasks)
dqn["objective_args"] = {"target": 5, "priority": 0.5, "final_exploration": 1.0}
whole, half = train("dqn", **dqn), train("dqn-part", steps=160, **dqn)
before = half.metrics[-1]["weights_sha256"]
gunreal.resume(half, show=False, steps=320)
found["dqn"] = [run.metrics[-1]["weights_sha256"] for run in (whole, gunreal.load(half.path))] + [before]
train("one", objective="a3c", device_batches=2, **tasks)
moved = train("moved", objective="a3c", device_batches=2, steps=96, devices="1", **tasks)
for steps, devices in ((208, "all"), (320, "1")):
    gunreal.resume(moved.path, show=False, steps=steps, devices=devices)
found["scores"] = first.evaluate(3).tolist()
found["refused"] = []
refused = [dict(tasks=[f"broken_tasks:{task}"]) for task in ("Recording", "LoopsOverData")]
for fields in (*refused, dict(tasks=["sil"], objective="dqn")):
    try:
        gunreal.train(gunreal.Config(**common, **fields), show=False)
    except gunreal.ConfigError as error:
        found["refused"].append(str(error))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What the program found, and the folder of its runs."""
    folder = tmp_path_factory.mktemp("runs")
    support = str(Path(__file__).parents[1] / "support")
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {[support, *sys.path]}\n{PROGRAM}", str(folder)]
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), folder


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_a_resumed_run_equals_one_that_was_not_stopped(runs, name):
    first, resumed, before = runs[0][name]
    assert resumed == first != before


@pytest.mark.parametrize("name", ["ppo", "part", "one", "moved", "dqn", "dqn-part"])
def test_it_leaves_what_other_runs_leave(runs, name):
    run = load(runs[1] / name)
    last = run.metrics[-1]
    assert last["step"] == 320 and last["stopped_by"] == "steps" and last["episodes"] > 0
    assert last["agents"] == 8 and last["trained"] == (320 if "dqn" in name else 312)  # a group's turn comes later
    assert np.isfinite(last["loss_vr"]) and last["loss_vr"] > 0
    assert run.config.backend == "jax" and run.spec.frame == (3,)
    saved = checkpoint.load(run.path)
    assert set(saved.learned()) < set(saved.state) and "weights/policy/kernel" in saved.learned()


def test_four_devices_do_the_updates_of_one(runs):
    """In a run that is resumed with more of them, and then with fewer."""
    one, other = (checkpoint.load(runs[1] / name).learned() for name in ("one", "moved"))
    assert one["version"] == other["version"] == 20
    for key, array in one.items():
        np.testing.assert_allclose(other[key], array, rtol=1e-5, atol=1e-5, err_msg=key)


def test_it_is_evaluated(runs):
    assert len(runs[0]["scores"]) == 3


def test_tasks_that_a_device_cannot_run_are_refused(runs):
    """Self-imitation needs a policy."""
    recording, looping, imitating = runs[0]["refused"]
    lacking = "a task records 'depth', which is no entry of a Dict observation of scripted_functional:make"
    assert recording == f"{lacking}; leave it out of device runs, or use --runner parallel"
    assert looping.startswith("task 'vr': sample() in JAX failed: ConcretizationTypeError: ") and "\n" not in looping
    assert imitating == "task 'sil' needs a policy, which dqn does not have; use --objective ppo"


def test_ctrl_c_saves_a_checkpoint(tmp_path):
    """SIGINT between two turns of Catch."""
    flags = "--runner device --env gunreal/Catch-v0 --agents 2 --t_max 4 --network mlp --hidden 4 --objective a3c"
    with Training(tmp_path, *flags.split(), "--metrics_seconds", 0.5) as run:
        run.wait_for(lambda lines: lines[-1]["updates"])
        assert run.signal(signal.SIGINT) == 0
        assert run.lines()[-1]["stopped_by"] == "SIGINT" and run.checkpoints()
