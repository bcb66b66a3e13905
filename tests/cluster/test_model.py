from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from learners import BACKEND, CONFIG, assert_equal_states, make_batch, make_learner

from gunreal.cluster.model import Model
from gunreal.cluster.moments import Limits
from gunreal.learning import devices


@pytest.fixture(scope="module", params=["adam", "rmsprop"])
def learner(request):
    devices.select(BACKEND)
    made = make_learner(dataclasses.replace(CONFIG, optimizer=request.param))
    for update in range(2):
        made.train(make_batch(seed=update), 1e-3)
    return made


@pytest.fixture
def model(learner):
    limits = {name: Limits(found.least, found.most) for name, found in learner.network.statistics.items()}
    return Model(learner.get_state(), limits)


def test_a_state_survives_the_way_through_the_reducers(learner, model):
    state = learner.get_state()
    assert_equal_states(model.state(model.shard()), state)
    assert {name: array.dtype for name, array in model.state(model.shard()).items()} == {
        name: array.dtype for name, array in state.items()
    }
    assert model.size == sum(array.size for name, array in state.items() if name.startswith("weights/"))
    assert model.version == 2 and model.shard().updates == 2


def test_another_network_is_refused(learner, model):
    state = dict(learner.get_state())
    model.check(state | {"version": np.array(99)})
    name = "weights/policy/kernel"
    with pytest.raises(ValueError, match="policy"):
        model.check(state | {name: state[name][:-1]})
