"""What makes a run slow, counted instead of timed: bytes for each step, and compilations."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from learners import BACKEND, make_batch, make_learner, seen

from gunreal.experience import queues
from gunreal.experience.segment import Layout
from gunreal.experience.spec import Spec


def test_a_step_costs_its_frame_and_few_bytes_more():
    """The frame is stored once, as uint8, whatever the stack. Queues carry references."""
    spec = Spec((1, 84, 84), 4, "uint8", 18)
    layout = Layout(spec, agents=4, groups=2, replay_size=2000, extra={}, slots=2, mailboxes={})
    assert layout.nbytes() / (4 * layout.ring) < 84 * 84 + 64 and layout.ring < 2100
    assert max(np.dtype(kind).itemsize for kind in (queues.REQUEST, queues.ROLLOUT, queues.REPLY)) <= 24


@pytest.mark.skipif(BACKEND != "tensorflow", reason="JAX compiles for each size")
def test_nothing_is_compiled_twice(monkeypatch):
    """Whatever the number of rollouts in a batch and of agents in a prediction."""
    from gunreal.learning.network import Network

    traced = collections.Counter()

    def counted(method):
        def call(*args, **kwargs):
            traced[method.__name__] += 1
            return method(*args, **kwargs)

        return call

    for method in (Network.predict, Network.loss):
        monkeypatch.setattr(Network, method.__name__, counted(method))
    learner = make_learner(new=True)
    for count in (3, 2, 5):
        batch = make_batch(count)
        learner.train(batch, 0.01)
        for head in ("base", "fit"):
            learner.predict(head, seen(batch)[:count])
    assert traced == {"predict": 2, "loss": 1}
