import broken_tasks
import pytest

from gunreal.experience.spec import Spec
from gunreal.tasks.value_replay import ValueReplay
from gunreal.testing import check_task

VECTOR = Spec((3,), 1, "float32", num_actions=2, t_max=4)


def test_vectors_with_a_recurrent_network():
    check_task(ValueReplay, VECTOR._replace(state=5))


def test_a_loss_with_metrics_and_progress():
    check_task(broken_tasks.Scheduled, VECTOR)


def test_a_loss_with_random_numbers():
    with pytest.raises(AssertionError, match="for the same batch: do not use random numbers in it$"):
        check_task(broken_tasks.Random, VECTOR)
