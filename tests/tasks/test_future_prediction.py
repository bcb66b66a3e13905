"""What the tasks that predict later steps have in common."""

import dataclasses

import numpy as np
import pytest
from rings import VECTOR, episodes, make_replay

from gunreal.tasks.base import ReplaySequence
from gunreal.tasks.contrastive import Contrastive
from gunreal.tasks.self_prediction import SelfPrediction

TASKS = [Contrastive(), SelfPrediction()]


@pytest.mark.parametrize("task", TASKS)
def test_targets_are_the_actions(task):
    replay = make_replay(VECTOR, episodes("-t --T -"), actions=[2, 1, 0, 1, 2, 2, 0, 1])
    assert task.targets(replay, ReplaySequence(0, 2), None)["action"].tolist() == [2, 1, 0, 0]
    assert task.targets(replay, ReplaySequence(3, 4), None)["action"].tolist() == [1, 2, 2, 0]
    assert task.targets(replay, ReplaySequence(3, 4), None)["action"].dtype == np.int32
    assert task.sample(make_replay(VECTOR, episodes("---")), np.random.default_rng(0)) is None


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("t_max", "options", "message"),
    [
        (1, {}, " predicts later steps of a sequence: raise t_max to 2 or more"),
        (5, {"steps": 8}, r"\.steps is 8: choose a value from 1 to 4, below t_max"),
        (20, {"steps": 0}, r"\.steps is 0: choose a value from 1 to 19"),
        (20, {"units": 0}, r"\.units is 0: choose 1 or more"),
    ],
)
def test_check_names_the_fix(task, t_max, options, message):
    with pytest.raises(ValueError, match=f"^{task.name}{message}"):
        dataclasses.replace(task, **options).check(VECTOR._replace(t_max=t_max))


@pytest.mark.parametrize(("task", "steps"), [(Contrastive(), 8), (SelfPrediction(), 5)])
def test_the_default_needs_longer_sequences(task, steps):
    with pytest.raises(ValueError, match=rf"^{task.name}\.steps is {steps}: choose a value from 1 to 4, below t_max"):
        task.check(VECTOR._replace(t_max=5))
