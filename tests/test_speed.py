"""What makes a run slow, counted instead of timed: bytes for each step."""

from __future__ import annotations

import numpy as np

from gunreal.experience import queues
from gunreal.experience.segment import Layout
from gunreal.experience.spec import Spec


def test_a_step_costs_its_frame_and_few_bytes_more():
    """The frame is stored once, as uint8, whatever the stack. Queues carry references."""
    spec = Spec((1, 84, 84), 4, "uint8", 18)
    layout = Layout(spec, agents=4, groups=2, replay_size=2000, extra={}, slots=2, mailboxes={})
    assert layout.nbytes() / (4 * layout.ring) < 84 * 84 + 64 and layout.ring < 2100
    assert max(np.dtype(kind).itemsize for kind in (queues.REQUEST, queues.ROLLOUT, queues.REPLY)) <= 24
