import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gunreal_representations.cloning import Cloning
from gunreal_representations.curl import Curl
from gunreal_representations.drac import Drac
from gunreal_representations.gated import GatedValueReplay
from gunreal_representations.probe import ActionProbe
from gunreal_representations.rnd import Rnd
from gunreal_representations.spr import Spr
from gunreal_representations.views import shifted

from gunreal.experience.spec import Spec
from gunreal.records import metrics
from gunreal.testing import check_task

RNG = np.random.default_rng(0)
MASK = np.array([[1, 1, 0, 1], [1, 1, 1, 1]], np.float32)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def number(tensor):
    from keras import ops

    return float(ops.convert_to_numpy(tensor))


@pytest.mark.parametrize("task", [Curl, Spr, Drac, Rnd, GatedValueReplay, ActionProbe, Cloning(data="expert")])
def test_keeps_the_contract(task):
    check_task(task)


def test_views_are_shifted_by_whole_pixels():
    from keras import ops

    image = np.arange(2 * 3 * 1 * 6 * 5, dtype=np.uint8).reshape(2, 3, 1, 6, 5)
    draws = RNG.random((2, 3, 2)).astype(np.float32)
    views = ops.convert_to_numpy(shifted(SimpleNamespace(observations=image, draws=lambda *_: draws), 2))
    padded = np.pad(image, ((0, 0),) * 3 + ((2, 2),) * 2, mode="edge")
    for b, t in np.ndindex(2, 3):
        row, column = np.floor(draws[b, t] * 5).astype(int)
        np.testing.assert_array_equal(views[b, t], padded[b, t, :, row : row + 6, column : column + 5])


def test_curl_is_the_cross_entropy_of_the_paper():
    """Equation 4, with all other observations as negatives."""
    queries, keys = normal(2, 4, 3), normal(2, 4, 3)
    loss, found = Curl(units=3).loss({"queries": queries, "keys": keys}, {"mask": MASK})
    kept = np.argwhere(MASK)
    slow, right = [], []
    for b, t in kept:
        scores = {(i, j): queries[b, t] @ keys[i, j] for i, j in map(tuple, kept)}
        slow.append(-np.log(np.exp(scores[b, t]) / sum(map(np.exp, scores.values()))))
        right.append(scores[b, t] == max(scores.values()))
    assert number(loss) == pytest.approx(np.mean(slow), rel=1e-5)
    assert number(found["accuracy"]) == pytest.approx(np.mean(right))


def test_spr_is_the_cosine_of_the_paper():
    """Equation 5, as a mean over the predictions that stay in an episode."""
    targets, predictions = normal(2, 4, 3), [normal(2, 3, 3), normal(2, 2, 3)]
    loss, _ = Spr(steps=2).loss({"targets": targets, "predictions": predictions}, {"mask": MASK})
    slow = []
    for b in range(2):
        for t in range(4):
            for k in (1, 2):
                if t + k < 4 and MASK[b, t : t + k + 1].all():
                    one, two = predictions[k - 1][b, t], targets[b, t + k]
                    slow.append(-(one @ two) / np.linalg.norm(one) / np.linalg.norm(two))
    assert len(slow) == 6
    assert number(loss) == pytest.approx(np.mean(slow), rel=1e-4)


def test_drac_is_the_regularization_of_the_paper():
    """Equations 4 and 5."""
    own, view = ({"logits": normal(2, 4, 3), "value": normal(2, 4), "scale": 2.0} for _ in range(2))
    slow = []
    for b, t in np.argwhere(MASK):
        p, q = (np.exp(x["logits"][b, t]) / np.exp(x["logits"][b, t]).sum() for x in (own, view))
        slow.append((p * np.log(p / q)).sum() + ((own["value"][b, t] - view["value"][b, t]) / 2) ** 2)
    loss = Drac().loss({"own": own, "view": view}, {"mask": MASK})
    assert number(loss) == pytest.approx(np.mean(slow), rel=1e-4)


def test_rnd_is_the_error_of_the_paper_and_its_moments_are_those_of_all_frames():
    """Sections 2.2 and 2.4. The moments of two batches are those of their union."""
    frames = [RNG.integers(0, 256, (2, 4, 1, 2, 3), np.uint8) for _ in range(2)]
    outputs, random = normal(2, 4, 5), normal(6, 5)
    task = Rnd(units=5, reward=0.5)
    state = {**task.state(Spec((1, 2, 3), 2, "uint8", 3)), "random": random}
    for frame in frames:
        before = state
        batch = {"frame": frame, "mask": MASK, "state": state}
        loss, _, new = task.loss(outputs, batch)
        state = {**state, **{name: np.asarray(x) for name, x in new.items()}}
    rows = np.concatenate([frame.reshape(2, 4, 6)[MASK > 0] for frame in frames]).astype(np.float64)
    assert state["pixel_count"] == len(rows) == 14
    np.testing.assert_allclose(state["pixel_mean"], rows.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(state["pixel_variance"], rows.var(axis=0), rtol=1e-4)
    normalized = ((rows[7:] - before["pixel_mean"]) / np.sqrt(before["pixel_variance"])).clip(-5, 5)
    errors = ((outputs[MASK > 0] - np.maximum(normalized @ random, 0)) ** 2).mean(axis=1)
    assert number(loss) == pytest.approx(errors.mean(), rel=1e-4)
    stacked = np.concatenate([np.zeros_like(frames[1]), frames[1]], axis=2)[MASK > 0]
    bonus = np.asarray(task.bonus(outputs[MASK > 0][:, None], stacked, before))
    np.testing.assert_allclose(bonus, 0.5 * errors / np.sqrt(before["error_variance"]), rtol=1e-4)


def test_the_gate_is_that_of_the_paper():
    """Algorithm 1, the unweighted version."""
    gate = GatedValueReplay().gate
    assert [number(gate(np.float32(cosine), 1.0, 1.0)) for cosine in (-0.5, 0.0, 0.5)] == [0, 0, 1]


def test_cloning_is_the_cross_entropy_of_the_action():
    logits, action = normal(2, 4, 3), RNG.integers(0, 3, (2, 4)).astype(np.int32)
    loss, found = Cloning().loss({"logits": logits}, {"action": action, "mask": MASK})
    at = [(b, t) for b, t in np.ndindex(2, 4) if MASK[b, t]]
    slow = [np.log(np.exp(logits[i]).sum()) - logits[i][action[i]] for i in at]
    assert number(loss) == pytest.approx(np.mean(slow), rel=1e-5)
    assert number(found["accuracy"]) == pytest.approx(np.mean([logits[i].argmax() == action[i] for i in at]))


def test_the_probe_is_the_cross_entropy_of_the_action_before():
    logits, action = normal(2, 4, 3), RNG.integers(0, 3, (2, 4)).astype(np.int32)
    loss, found = ActionProbe().loss(logits, {"action": action, "mask": MASK})
    at = [(b, t) for b in range(2) for t in range(1, 4) if MASK[b, t - 1 : t + 1].all()]
    slow = [np.log(np.exp(logits[i]).sum()) - logits[i][action[i[0], i[1] - 1]] for i in at]
    assert number(loss) == pytest.approx(np.mean(slow), rel=1e-5)
    assert number(found["accuracy"]) == pytest.approx(
        np.mean([logits[i].argmax() == action[i[0], i[1] - 1] for i in at])
    )


TASKS = ["curl:Curl", "spr:Spr", "drac:Drac", "rnd:Rnd", "gated:GatedValueReplay", "probe:ActionProbe"]


@pytest.mark.parametrize(
    ("runner", "tasks"),
    [
        ("--env gunreal/Catch-v0 --min_batch 160 --network lstm", TASKS),
        ("--env gunreal/Catch-v0 --min_batch 160 --runner serial", TASKS),
        ("--env gunreal/Catch-v0 --runner device", [TASKS[0], TASKS[3], TASKS[4]]),
    ],
)
def test_trains(tmp_path, runner, tasks):
    if "device" in runner:
        pytest.importorskip("jax")
    named = ",".join(f"gunreal_representations.{task}" for task in tasks) + ",again=gunreal_representations.rnd:Rnd"
    flags = f"{runner} --logdir {tmp_path} --name run --steps 480 --agents 8 --hidden 16 --tasks {named}"
    command = [sys.executable, "-m", "gunreal", "train", *flags.split(), "--task", "again.units=8"]
    subprocess.run(command, check=True, cwd=Path(__file__).parent)
    (*_, line) = metrics.read(tmp_path / "run" / metrics.FILE)
    assert line["updates"] > 2
    losses = [value for name, value in line.items() if name.startswith("loss_")]
    assert len(losses) >= len(tasks) + 1 and np.isfinite(losses).all()
