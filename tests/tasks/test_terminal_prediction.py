import numpy as np
import pytest
from rings import VECTOR, episodes, make_segment, targets

from gunreal.tasks.terminal_prediction import TerminalPrediction

TASK = TerminalPrediction(discount=0.5)


def returns(flags, sequence, bootstrap):
    return targets(TASK, make_segment(VECTOR, episodes(flags)), sequence, bootstrap)["returns"].tolist()


def test_targets_are_the_discounted_termination():
    # rows 0 to 2 end with a termination, row 3 is RESET, and row 4 belongs to the next episode
    assert returns("--T --", (0, 3), 0.8) == [0.25, 0.5, 1, 0]
    assert returns("--T --", (2, 4), 0.8) == pytest.approx([1, 0.1, 0.2, 0.4])


def test_a_truncated_episode_bootstraps():
    assert returns("--t --", (0, 3), 0.8) == pytest.approx([0.1, 0.2, 0.4, 0])


def test_loss_is_the_cross_entropy():
    logits, mask = np.float32([[[0], [2], [5]]]), np.float32([[1, 1, 0]])
    p = 1 / (1 + np.exp(-2.0))
    wanted = (np.log(2) - 0.3 * np.log(p) - 0.7 * np.log(1 - p)) / 2
    loss = TASK.loss(logits, {"returns": np.float32([[0.9, 0.3, 1]]), "mask": mask})
    assert float(loss) == pytest.approx(wanted, rel=1e-5)


def test_bootstrap_is_a_probability():
    np.testing.assert_allclose(TASK.bootstrap(np.float32([[[0]], [[np.log(3)]]])), [0.5, 0.75], rtol=1e-6)
