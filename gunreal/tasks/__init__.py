"""Auxiliary tasks: the base class, helpers for writing tasks, and the built-in tasks in one file each.

Import `masked_mean`, `masks_ahead` and `mean_ahead` inside `loss`. They load Keras, which agent processes must not do.
FIRST, TERMINATED, TRUNCATED and RESET are the bits of `replay.get("flags", ...)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gunreal.experience.replay import FIRST, RESET, TERMINATED, TRUNCATED, Replay, steps_until
from gunreal.experience.returns import clip_rewards, n_step_returns
from gunreal.experience.sequences import (
    DRAWS,
    Sequences,
    WeightedSequences,
    choose,
    pad,
    prioritized_sequences,
    uniform_sequences,
)
from gunreal.experience.spec import RecordedField, Spec
from gunreal.learning.task import AuxiliaryTask

if TYPE_CHECKING:
    from gunreal.learning.losses import masked_mean, masks_ahead, mean_ahead

__all__ = ["AuxiliaryTask", "RecordedField", "Replay", "Sequences", "Spec", "choose", "clip_rewards", "masked_mean"]
__all__ += ["masks_ahead", "mean_ahead", "n_step_returns", "pad", "prioritized_sequences", "steps_until"]
__all__ += ["WeightedSequences", "uniform_sequences"]
__all__ += ["DRAWS", "FIRST", "RESET", "TERMINATED", "TRUNCATED"]


def __getattr__(name: str) -> Any:
    if name not in ("masked_mean", "masks_ahead", "mean_ahead"):
        raise AttributeError(f"module 'gunreal.tasks' has no attribute {name!r}")
    from gunreal.learning import losses

    return getattr(losses, name)
