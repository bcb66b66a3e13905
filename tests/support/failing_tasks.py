"""Tasks that fail in the middle of a run; for tests of whole runs."""

import sys

import numpy as np

from gunreal.tasks.value_replay import ValueReplay


def in_agent_process() -> bool:
    """False in the server, where a dry run of each task has to pass."""
    return "gunreal.acting.pool" not in sys.modules


class LossRaises(ValueReplay):
    def loss(self, outputs, batch):
        raise RuntimeError("the loss is at a loss")


class Poisoned(ValueReplay):
    """Its loss is not a number from each agent's 100th step on."""

    def targets(self, replay, sequences, bootstraps):
        targets = super().targets(replay, sequences, bootstraps)
        return {"returns": np.full_like(targets["returns"], np.nan)} if replay.end > 100 else targets
