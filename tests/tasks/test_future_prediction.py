"""What the tasks that predict later steps have in common."""

import numpy as np
import pytest
from rings import VECTOR, draws, episodes, make_segment, targets

from gunreal.tasks.contrastive import Contrastive
from gunreal.tasks.self_prediction import SelfPrediction

TASKS = [Contrastive(), SelfPrediction()]


@pytest.mark.parametrize("task", TASKS)
def test_targets_are_the_actions(task):
    segment = make_segment(VECTOR, episodes("-t --T -"), actions=[2, 1, 0, 1, 2, 2, 0, 1])
    assert targets(task, segment, (0, 2))["action"].tolist() == [2, 1, 0, 0]
    assert targets(task, segment, (3, 4))["action"].tolist() == [1, 2, 2, 0]
    assert targets(task, segment, (3, 4))["action"].dtype == np.int32
    assert draws(task, make_segment(VECTOR, episodes("---"))) == [None]
