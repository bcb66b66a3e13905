from __future__ import annotations

import numpy as np
import pytest
from helpers import Bench, FakeLearner
from measuring import window

from gunreal.experience.spec import Spec


def test_calls_are_counted_until_the_end():
    learner = FakeLearner()
    calls = window.Calls(learner)
    observations = np.zeros((3, 4), np.float32)
    learner.predict("base", observations[:2])
    calls.clear()
    logits, _ = learner.predict("base", observations)
    learner.predict("pc", observations[:1], None)
    assert learner.train({"a": 1}, 0.1, 0.0, 0.0)["loss_total"] == 1.0
    calls.stop()
    learner.predict("base", observations), learner.train({"b": 1}, 0.1, 0.0, 0.0)
    assert len(logits) == 3 and len(learner.asked) == 4 and learner.version == 2
    assert {name: [size for size, _ in of] for name, of in calls.predictions.items()} == {"base": [3], "pc": [1]}
    assert len(calls.updates) == 1 and calls.predictions["base"][0][1] > 0


def test_spread():
    found = window.spread([1, 2, 2, 4, 16])
    assert (found["count"], found["mean"], found["p50"], found["max"]) == (5, 5.0, 2.0, 16)
    assert found["sizes"] == {"1": 1, "2": 2, "4": 1, "16": 1}
    assert window.spread([]) == {"count": 0, "sizes": {}}


@pytest.mark.parametrize("tasks", [(), ("vr",)])
def test_bytes_per_step_against_the_arrays(tasks):
    """What is written to a row, and what one step's predictions and training take, counted by hand."""
    with Bench("~", tasks, agents=2, min_batch=8, replay_size=10) as bench:
        bench.start()
        (batch, *_) = bench.step(20)
        sizes = {"base": [2, 2, 1], "vr": [1]} if tasks else {"base": [2, 2, 1]}
        found = window.bytes_per_step(bench.spec, bench.layout.arrays(), sizes, batch)
        frame, stack = 3 * 4, 2
        assert (
            found["written"] == frame + 4 + 4 + 1 + 1 + 4 + 4 + 4
        )  # action, reward, flags, age, log mu, value, version
        assert found["gathered_predict"] == stack * frame * (6 / 5 if tasks else 1)
        arrays = [batch["observations"], *batch["base"].values(), *(batch["vr"].values() if tasks else ())]
        assert found["gathered_train"] == sum(array.nbytes for array in arrays) / 8
        assert found["to_device"] == found["gathered_predict"] + found["gathered_train"]


def test_floats_to_the_device_are_four_times_the_bytes():
    spec, observation = Spec((1, 28, 36), 2, "uint8", 3, t_max=4), 2 * 28 * 36
    arrays = {"frame": ((2, 10, 1, 28, 36), np.dtype("uint8"))}
    batch = {"observations": np.zeros((8, 2, 28, 36), np.uint8), "base": {"mask": np.zeros((2, 4), np.float32)}}
    found = [window.bytes_per_step(spec, arrays, {"base": [4, 4]}, batch, floats) for floats in (False, True)]
    assert [x["to_device"] for x in found] == [2 * observation + 4, 2 * 4 * observation + 4]
    assert found[0]["gathered_train"] == found[1]["gathered_train"] == observation + 4


def test_a_run_that_ends_early_was_not_measured(tmp_path):
    class Idle:
        def work(self, batch):
            raise AssertionError("nothing is trained")

    class System:
        learner, trainer = FakeLearner(), Idle()

    with pytest.raises(RuntimeError, match="ended before it could be measured"):
        window.Window(System(), 1.0, 1.0, 0.0).close()
