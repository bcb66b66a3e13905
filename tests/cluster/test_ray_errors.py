from __future__ import annotations

from gunreal.cluster import ray_errors


def test_the_reason_of_a_loss_is_one_line_without_guesses():
    text = "The worker died. Worker exit detail: end of file. Some common causes include: (1) the OOM killer"
    assert ray_errors.in_one_line(RuntimeError(text)) == "The worker died. Worker exit detail: end of file."
