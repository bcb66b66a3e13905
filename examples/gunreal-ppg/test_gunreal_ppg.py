import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gunreal_ppg import Ppg

from gunreal.records import metrics
from gunreal.testing import check_objective


def test_keeps_the_contract():
    check_objective(Ppg)


def test_the_loss_of_the_phase_is_that_of_the_paper():
    from keras import ops

    rng = np.random.default_rng(0)
    logits, old = rng.normal(size=(2, 2, 3, 4)).astype(np.float32)
    value, returns = rng.normal(size=(2, 2, 3)).astype(np.float32)
    mask = np.array([[1, 1, 0], [1, 0, 1]], np.float32)
    batch = {"mask": mask, "returns": returns, "old_logits": old}
    loss, _ = Ppg(clone=0.5).phase_loss({"logits": logits, "value": value, "scale": 2.0}, batch)
    slow = []
    for b, t in zip(*np.nonzero(mask), strict=True):
        p, q = (np.exp(x[b, t]) / np.exp(x[b, t]).sum() for x in (old, logits))
        slow.append(0.5 * ((returns[b, t] - value[b, t]) / 2) ** 2 + 0.5 * (p * np.log(p / q)).sum())
    assert float(ops.convert_to_numpy(loss)) == pytest.approx(np.mean(slow), rel=1e-4)


@pytest.mark.parametrize("runner", ["--min_batch 160", "--runner device"])
def test_trains(tmp_path, runner):
    if "device" in runner:
        pytest.importorskip("jax")
    flags = (
        f"{runner} --env gunreal/Catch-v0 --logdir {tmp_path} --name run --steps 1300 --agents 8 --hidden 16"
        " --tasks vr,gunreal_representations.rnd:Rnd"  # whose reward has a value of its own
    )
    flags += " --objective gunreal_ppg:Ppg --objective_args batches=2,minibatches=2"
    command = [sys.executable, "-m", "gunreal", "train", *flags.split()]
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": str(here.parent / "gunreal-representations")}
    subprocess.run(command, check=True, cwd=here, env=environment)
    lines = metrics.read(tmp_path / "run" / metrics.FILE)
    clones = [line["phase_loss_clone"] for line in lines if line.get("phase_loss_clone") is not None]
    assert clones and np.isfinite(clones).all()
    # Two updates with each batch, and after every second batch six passes over two batches of two minibatches.
    assert lines[-1]["updates"] >= 6 * 2 + 3 * 6 * 2 * 2
