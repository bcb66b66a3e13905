"""Tasks that each break one rule of the contract, and two that keep it; for tests in tasks/.

Not in the test module itself: agent processes import a task's module, and that must not import Keras.
"""

import numpy as np

from gunreal.experience.spec import RecordedField
from gunreal.tasks.base import ReplaySequence, pad, uniform_sequence
from gunreal.tasks.reward_prediction import RewardPrediction
from gunreal.tasks.value_replay import ValueReplay


class Recording(RewardPrediction):
    """Stores a field of its own; keeps the contract."""

    def record(self, spec):
        return {"depth": RecordedField("depth", (), "float32")}

    def targets(self, replay, sequence, bootstrap):
        return {"class": np.array(replay.get("depth", *sequence).sum() > 0, np.int32)}


class RecordsReward(Recording):
    def record(self, spec):
        return {"reward": RecordedField("depth", (), "float32")}


class ForgetsTheState(ValueReplay):
    """Breaks a rule with a recurrent network only."""

    def targets(self, replay, sequence, bootstrap):
        found = super().targets(replay, sequence, bootstrap)
        return {name: array / (replay.spec.state == 0) for name, array in found.items()}


class RefusesMemory(ForgetsTheState):
    def check(self, spec):
        if spec.state:
            raise ValueError("it is for networks without a memory")


class Unpicklable(ValueReplay):
    def __reduce__(self):
        return ValueReplay, ()


class BadName(ValueReplay):
    name = "value replay"


class OfAScript(ValueReplay):
    __module__ = "__main__"


class OfABatch(ValueReplay):
    name = "past"


class BadFeatures(ValueReplay):
    features = "pixels"


class Unannotated(ValueReplay):
    weight = 0.5


class NotNone(ValueReplay):
    def sample(self, replay, rng):
        return uniform_sequence(replay, rng) or ReplaySequence(0, 1)


class TooLong(ValueReplay):
    def sample(self, replay, rng):
        drawn = uniform_sequence(replay, rng)
        return drawn and ReplaySequence(drawn.first, replay.spec.t_max + 1)


class Incomplete(ValueReplay):
    def sample(self, replay, rng):
        return ReplaySequence(replay.end - 1, 4) if len(replay) > 10 else None


class TooOld(ValueReplay):
    def sample(self, replay, rng):
        return ReplaySequence(replay.oldest - 1, 2) if replay.oldest else None


class PastTruncation(ValueReplay):
    def sample(self, replay, rng):
        drawn = uniform_sequence(replay, rng)
        return drawn and ReplaySequence(min(drawn.first, replay.end - 4), 4)


class NothingEver(ValueReplay):
    def sample(self, replay, rng):
        return None


class Ragged(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        return {"returns": replay.get("reward", *sequence)}


class Infinite(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        return {"returns": np.full(replay.spec.t_max, np.inf, np.float32)}


class Doubles(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        return {"returns": np.zeros(replay.spec.t_max)}


class NamesMask(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        return {"mask": np.zeros(replay.spec.t_max, np.float32)}


class NoTable(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        super().targets(replay, sequence, bootstrap)


class Words(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        return {"returns": np.array("good")}


class Misspells(ValueReplay):
    def loss(self, outputs, batch):
        return batch["return"]


class NoArray(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        return {"returns": [0.0] * replay.spec.t_max}


class IgnoresTermination(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        rewards = replay.get("reward", *sequence)
        returns = rewards[::-1].cumsum()[::-1] + bootstrap
        return {"returns": pad(returns.astype(np.float32), replay.spec.t_max)}


class LoadsKeras(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        import keras  # noqa: F401

        return super().targets(replay, sequence, bootstrap)


class NoScalar(ValueReplay):
    def loss(self, outputs, batch):
        return (batch["returns"] - outputs["value"]) ** 2 * batch["mask"]


class IgnoresMask(ValueReplay):
    def loss(self, outputs, batch):
        from keras import ops

        return ops.mean((batch["returns"] - outputs["value"]) ** 2)


class IgnoresMaskOfOutputs(ValueReplay):
    def loss(self, outputs, batch):
        from keras import ops

        return super().loss(outputs, batch) + ops.mean(outputs["value"])


class DividesByNothing(ValueReplay):
    def loss(self, outputs, batch):
        from keras import ops

        error = (batch["returns"] - outputs["value"]) ** 2 * batch["mask"]
        return ops.sum(error) / ops.sum(batch["mask"])


class NotFinite(ValueReplay):
    def loss(self, outputs, batch):
        return super().loss(outputs, batch) * float("inf")


class BadGradient(ValueReplay):
    def loss(self, outputs, batch):
        from keras import ops

        # The gradient of a square root at 0 is infinite, and 0 times that is not a number.
        return ops.sum(ops.sqrt(0.0 * outputs["value"]))


class Detached(ValueReplay):
    def loss(self, outputs, batch):
        from keras import ops

        return super().loss({**outputs, "value": ops.stop_gradient(outputs["value"])}, batch)


class Scheduled(ValueReplay):
    """Has a metric, and a loss that falls over the training; keeps the contract."""

    def loss(self, outputs, batch):
        loss = super().loss(outputs, batch)
        return loss * (1 - batch["progress"]), {"progress": batch["progress"]}


class NamesProgress(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        return super().targets(replay, sequence, bootstrap) | {"progress": np.zeros(1, np.float32)}


class Random(ValueReplay):
    def loss(self, outputs, batch):
        from keras import random

        return super().loss(outputs, batch) * (1 + random.uniform(()))
