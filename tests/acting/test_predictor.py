from __future__ import annotations

import numpy as np
from helpers import Bench, logits, task_bootstrap, value

from gunreal.acting.predictor import sample_actions
from gunreal.experience import queues


def requests(*pairs):
    return np.array(list(pairs), queues.REQUEST)


def log_softmax(x):
    x = x.astype(np.float64) - x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def test_actions_are_drawn_from_the_softmax():
    n, row = 60_000, np.array([2.0, 0.0, -1.0, 1.0, -30.0], np.float32)
    actions, log_mu = sample_actions(np.tile(row, (n, 1)), np.random.default_rng(1))
    assert actions.dtype == np.int32 and log_mu.dtype == np.float32 and actions.shape == log_mu.shape == (n,)
    expected = np.exp(log_softmax(row[None]))[0]
    shares = np.bincount(actions, minlength=5) / n
    np.testing.assert_allclose(shares, expected, atol=5 * np.sqrt(0.25 / n))  # five standard deviations
    assert shares[4] == 0
    np.testing.assert_allclose(log_mu, np.log(expected)[actions], rtol=1e-6, atol=1e-6)


def test_rows_are_drawn_independently():
    """Each row by its own logits, which may be large, and the same logits not always alike."""
    x = np.array([[0, 50, 0], [50, 0, 0], [0, 0, 50], [1e4, 1e4 - 1, -1e4]], np.float32)
    actions, log_mu = sample_actions(x, np.random.default_rng(0))
    assert actions[:3].tolist() == [1, 0, 2] and actions[3] in (0, 1)
    np.testing.assert_allclose(log_mu, log_softmax(x)[range(4), actions], atol=1e-3)
    assert set(sample_actions(np.zeros((100, 3)), np.random.default_rng(0))[0]) == {0, 1, 2}


def test_answers_land_in_the_rows_that_asked():
    """Two processes and three of their four groups in one batch, out of order, with wrapped rings."""
    with Bench("--T ----T ~", members=2, agents=3, stack=3, replay_size=4) as bench:
        bench.start()
        bench.step(bench.layout.ring + 3)
        bench.members[0].step()  # one step ahead of the other
        bench.learner.acting_version = 77
        bench.learner.asked.clear()
        for member in bench.members:
            member.wake.get(100, 0)
            for name in ("action", "version", "value", "log_mu"):
                member.segment.arrays[name][:] = 99
        assert bench.predictors["base"].serve(requests((1, 1), (0, 1), (0, 0))) == 4

        ((head, observations),) = bench.learner.asked
        assert head == "base"
        for row, (m, agent) in enumerate([(1, 2), (0, 2), (0, 0), (0, 1)]):
            arrays, replay = bench.members[m].segment.arrays, bench.members[m].segment.replay(np.array([agent]))
            at = (agent, replay.end % bench.layout.ring)
            np.testing.assert_array_equal(observations[row], replay.observations(np.array([[replay.end]]))[0, 0])
            assert arrays["value"][at] == value(observations)[row] and arrays["version"][at] == 77
            own = log_softmax(logits(observations))[row]
            np.testing.assert_allclose(arrays["log_mu"][at], own[arrays["action"][at]], rtol=1e-5)
        for name in ("action", "version", "value", "log_mu"):  # and no other row
            assert sum(int((member.segment.arrays[name] != 99).sum()) for member in bench.members) == 4
        assert bench.members[0].wake.get(100, 0).tolist() == [(0, 1), (0, 0)]
        assert bench.members[1].wake.get(100, 0).tolist() == [(0, 1)]


def test_the_version_is_that_of_the_weights_that_acted():
    """Newer weights may come during a prediction."""
    with Bench("~", agents=1) as bench:
        bench.members[0].worker.start()
        predict = bench.learner.predict

        def during_an_update(*inputs):
            bench.learner.acting_version += 1
            return predict(*inputs)

        bench.learner.predict, bench.learner.acting_version = during_an_update, 7
        bench.predictors["base"].serve(requests((0, 0)))
        assert bench.members[0].segment.arrays["version"][0, 0] == 7


def test_requests_of_removed_processes_are_dropped():
    with Bench("~", members=2, agents=2) as bench:
        bench.start()
        gone = bench.pool.remove(0)
        gone.wake.get(10, 0)
        bench.learner.asked.clear()
        assert bench.predictors["base"].serve(requests((0, 0), (0, 1))) == 0
        assert bench.learner.asked == []  # no empty prediction
        assert bench.predictors["base"].serve(requests((0, 0), (1, 1), (0, 1))) == 1
        assert len(bench.learner.asked[0][1]) == 1
        assert len(gone.wake) == 0


def test_bootstraps_are_of_the_asked_steps_and_skip_agents_without_a_sequence():
    with Bench("--T ----T", tasks=["vr"], agents=4) as bench:
        bench.start()
        bench.step(12)
        member = bench.members[0]
        member.wake.get(100, 0)
        steps, bootstrap = (member.segment.arrays[f"vr.{name}"] for name in ("bootstrap_step", "bootstrap"))
        steps[:, 0] = [3, -1, 5, 6]
        bootstrap[:] = 9.0
        bench.learner.asked.clear()
        assert bench.predictors["vr"].serve(requests((0, 1), (0, 0))) == 3
        ((head, observations),) = bench.learner.asked
        assert head == "vr"
        wanted = [
            member.segment.replay(np.array([agent])).observations(np.array([[step]]))[0, 0]
            for agent, step in [(2, 5), (3, 6), (0, 3)]
        ]
        np.testing.assert_array_equal(observations, wanted)
        predicted = task_bootstrap(observations)
        np.testing.assert_array_equal(bootstrap[:, 0], [predicted[2], 9.0, predicted[0], predicted[1]])
        assert member.wake.get(10, 0).tolist() == [(1, 1), (1, 0)]
        # A group without any sequence is answered all the same, whatever a bootstrap's shape.
        member.segment.arrays["vr.bootstrap"], steps[:] = np.full((4, 5, 7), 9.0), -1
        assert bench.predictors["vr"].serve(requests((0, 0), (0, 1))) == 0 and len(bench.learner.asked) == 1
        assert (member.segment.arrays["vr.bootstrap"] == 9).all()
        assert member.wake.get(10, 0).tolist() == [(1, 0), (1, 1)]
