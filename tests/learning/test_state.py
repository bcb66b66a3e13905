"""The arrays of a task that gradients do not train."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops
from learners import Fit, assert_equal_states, make_batch, make_learner

from gunreal.config.schema import ConfigError


@dataclasses.dataclass(frozen=True)
class Counting(Fit):
    """Counts its updates, adds up its targets, and has weights that stay as they are."""

    def state(self, spec):
        frozen = keras.initializers.GlorotUniform()((3, 2))
        return {"count": np.zeros((), np.int32), "sum": np.zeros(2, np.float32), "frozen": frozen}

    def loss(self, outputs, batch):
        state = batch["state"]
        total = ops.cast(ops.sum(batch["target"], axis=(0, 1)), "float32")
        new = {"count": state["count"] + 1, "sum": state["sum"] + total}
        count = ops.cast(state["count"], "float32")
        return super().loss(outputs, batch), {"count": count, "frozen": ops.sum(state["frozen"])}, new


def state_of(learner):
    found = learner.get_state()
    return {name.removeprefix("state/fit/"): x for name, x in found.items() if name.startswith("state/")}


def test_each_update_reads_what_the_one_before_it_returned():
    learner, batches = make_learner(tasks=(Counting(),)), [make_batch(seed=seed) for seed in range(3)]
    first = state_of(learner)
    found = [learner.train(batch, 0.01) for batch in batches]
    assert [metrics["fit_count"] for metrics in found] == [0, 1, 2]
    assert [metrics["fit_frozen"] for metrics in found] == pytest.approx([first["frozen"].sum()] * 3, rel=1e-5)
    after = state_of(learner)
    assert (after["count"], after["count"].dtype) == (3, np.int32)
    np.testing.assert_allclose(
        after["sum"], sum(batch["fit"]["target"].sum(axis=(0, 1)) for batch in batches), atol=1e-5
    )
    np.testing.assert_array_equal(after["frozen"], first["frozen"])
    assert "frozen" not in "".join(learner.network.names)


def test_initializers_depend_on_the_seed_of_the_run():
    one, same, other = (make_learner(tasks=(Counting(),), seed=s, new=True) for s in (3, 3, 4))
    np.testing.assert_array_equal(state_of(one)["frozen"], state_of(same)["frozen"])
    assert (state_of(one)["frozen"] != state_of(other)["frozen"]).all()


@pytest.mark.parametrize("part", ["base", "fit"])
def test_a_skipped_update_and_one_without_the_task_change_nothing(part):
    """A target that is not finite would spoil the sum for ever."""
    learner, bad = make_learner(tasks=(Counting(),)), make_batch(seed=1)
    learner.train(make_batch(), 0.01)
    before = learner.get_state()
    bad[part]["returns" if part == "base" else "target"][...] = np.inf
    assert learner.train(bad, 0.01)["skipped"]
    assert_equal_states(learner.get_state(), before)
    learner.train({"base": make_batch(seed=1)["base"]}, 0.01)
    assert state_of(learner)["count"] == 1


@pytest.mark.parametrize(
    ("first", "new", "message"),
    [
        (np.zeros(2), None, r"'sum' of state\(\) is float64; use float32, int32 or bool$"),
        (np.full(2, np.inf, np.float32), None, r"'sum' of state\(\) is not finite$"),
        (np.zeros(2, np.float32), np.zeros(3, np.float32), r"the state 'sum' as float32 \[3\]; keep it float32 \[2\]$"),
        (np.zeros(2, np.float32), np.zeros(2, np.int32), r"the state 'sum' as int32 \[2\]; keep it float32 \[2\]$"),
    ],
)
def test_arrays_that_cannot_be_a_state(first, new, message):
    class Wrong(Fit):
        def state(self, spec):
            return {"sum": first}

        def loss(self, outputs, batch):
            return super().loss(outputs, batch), {}, {"sum": new}

    with pytest.raises(ConfigError, match=f"^task 'fit': .*{message}"):
        make_learner(tasks=(Wrong(),), new=True).gradient(make_batch())
