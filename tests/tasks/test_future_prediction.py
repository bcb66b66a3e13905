"""What the tasks that predict later steps have in common."""

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
