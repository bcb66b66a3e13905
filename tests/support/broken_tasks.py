"""Tasks that each break one rule of the contract, and three that keep it; for tests in tasks/.

Not in the test module itself: agent processes import a task's module, and that must not import Keras.
"""

import numpy as np
from defining import define
from rich_task import Prioritized

from gunreal.experience.sequences import Sequences, pad, uniform_sequences
from gunreal.experience.spec import RecordedField
from gunreal.tasks.reward_prediction import RewardPrediction
from gunreal.tasks.value_replay import ValueReplay


class Recording(RewardPrediction):
    """Stores a field of its own; keeps the contract."""

    def record(self, spec):
        return {"depth": RecordedField("depth", (), "float32")}

    def targets(self, replay, sequences, bootstraps):
        depths = replay.get("depth", sequences.first, 3)
        return {"class": replay.xp.astype(depths.sum(axis=1) > 0, replay.xp.int32)}


class Scheduled(ValueReplay):
    """Has a metric, and a loss that falls over the training; keeps the contract."""

    def loss(self, outputs, batch):
        loss = super().loss(outputs, batch)
        return loss * (1 - batch["progress"]), {"progress": batch["progress"]}


def sample(change):
    """A sampling that returns `change(replay, first, length)`."""

    def changed(self, replay, draws):
        return Sequences(*change(replay, *uniform_sequences(replay, draws)))

    return {"sample": changed}


def returns(change):
    """Targets whose returns are `change(returns)`."""

    def changed(self, replay, sequences, bootstraps):
        return {"returns": change(ValueReplay.targets(self, replay, sequences, bootstraps)["returns"])}

    return {"targets": changed}


def loss(change):
    """A loss that returns `change(loss, outputs, batch)`."""
    return {"loss": lambda self, outputs, batch: change(ValueReplay.loss(self, outputs, batch), outputs, batch)}


def noise(shape):
    return np.random.random(shape).astype(np.float32)


define(
    __name__,
    ValueReplay,
    Unpicklable={"__reduce__": lambda self: (ValueReplay, ())},
    BadName={"name": "value replay"},
    OfAScript={"__module__": "__main__"},
    OfABatch={"name": "past"},
    BadFeatures={"features": "pixels"},
    Unannotated={"weight": 0.5},
    UnusedAverage={"average": 0.1},
    NoSequences={"replays": 0},
    TooLong=sample(lambda replay, first, length: (first, length * 0 + replay.spec.t_max + 1)),
    Incomplete=sample(lambda replay, first, length: (first * 0 + replay.end - 1, length * 0 + 4)),
    TooOld=sample(lambda replay, first, length: (first * 0 + replay.oldest - 1, length)),
    PastTruncation=sample(
        lambda replay, first, length: (replay.xp.minimum(first, replay.end - 4), replay.xp.where(length > 0, 4, 0))
    ),
    NothingEver=sample(lambda replay, first, length: (first, 0 * length)),
    NoPair={"sample": lambda self, replay, draws: (replay.oldest, 1)},
    Unrepeatable={"sample": lambda self, replay, draws: uniform_sequences(replay, noise(draws.shape))},
    LoopsOverData=sample(lambda replay, first, length: (first, np.array([int(number) for number in length]))),
    OfAllAgents=returns(lambda found: found - found.mean()),
    RandomTargets=returns(lambda found: found + noise(found.shape)),
    OtherInJax=returns(lambda found: found if isinstance(found, np.ndarray) else 2 * found),
    Ragged=returns(lambda found: found[0]),
    Infinite=returns(lambda found: np.full(found.shape, np.inf, np.float32)),
    Doubles=returns(lambda found: np.zeros(found.shape)),
    Words=returns(lambda found: np.full(len(found), "good")),
    NoArray=returns(lambda found: [0.0] * len(found)),
    NamesMask={"targets": lambda self, replay, sequences, bootstraps: {"mask": bootstraps}},
    NamesProgress={"targets": lambda self, replay, sequences, bootstraps: {"progress": bootstraps}},
    NoTable={"targets": lambda self, replay, sequences, bootstraps: None},
    NotFinite=loss(lambda found, outputs, batch: found * float("inf")),
    BonusesOfFeatures={"bonus": lambda self, outputs, observations, state: observations},
)


class RecordsReward(Recording):
    def record(self, spec):
        return {"reward": RecordedField("depth", (), "float32")}


class ForgetsTheState(ValueReplay):
    """Breaks a rule with a recurrent network only."""

    def targets(self, replay, sequences, bootstraps):
        found = super().targets(replay, sequences, bootstraps)
        return {name: array / (replay.spec.state == 0) for name, array in found.items()}


class RefusesMemory(ForgetsTheState):
    def check(self, spec):
        if spec.state:
            raise ValueError("it is for networks without a memory")


class IgnoresTermination(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        rewards = pad(replay.get("reward", sequences.first, replay.spec.t_max), sequences.length)
        return {"returns": rewards[:, ::-1].cumsum(axis=1)[:, ::-1] + bootstraps[:, None]}


class LoadsKeras(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        import keras  # noqa: F401

        return super().targets(replay, sequences, bootstraps)


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


class CountsMasked(ValueReplay):
    """Sums up returns."""

    def state(self, spec):
        return {"sum": np.zeros((), np.float32)}

    def new(self, batch):
        return {"sum": batch["state"]["sum"] + batch["returns"].sum()}

    def loss(self, outputs, batch):
        return super().loss(outputs, batch), {}, self.new(batch)


class SpoilsState(CountsMasked):
    def new(self, batch):
        mask = batch["mask"]
        return {"sum": batch["state"]["sum"] + (batch["returns"] * mask).sum() / mask.sum()}


class OtherState(CountsMasked):
    def new(self, batch):
        return {"sums": batch["state"]["sum"]}


class BadGradient(ValueReplay):
    def loss(self, outputs, batch):
        from keras import ops

        # The gradient of a square root at 0 is infinite, and 0 times that is not a number.
        return ops.sum(ops.sqrt(0.0 * outputs["value"]))


class Detached(ValueReplay):
    def loss(self, outputs, batch):
        from keras import ops

        return super().loss({**outputs, "value": ops.stop_gradient(outputs["value"])}, batch)


class Random(ValueReplay):
    def loss(self, outputs, batch):
        from keras import random

        return super().loss(outputs, batch) * (1 + random.uniform(()))


class BonusesOfTheBatch(ValueReplay):
    def bonus(self, outputs, observations, state):
        from keras import ops

        return outputs["value"][:, 0] - ops.mean(observations)


class NegativePriorities(Prioritized):
    def loss(self, outputs, batch):
        loss, found = super().loss(outputs, batch)
        return loss, {"priority": -found["priority"]}


class PrioritiesOfPadding(Prioritized):
    def loss(self, outputs, batch):
        from keras import ops

        loss, found = super().loss(outputs, batch)
        return loss, {"priority": ops.mean(found["priority"], axis=1)}


class NoWeights(Prioritized):
    def sample(self, replay, draws):
        found = super().sample(replay, draws)
        return found._replace(weight=found.weight * np.float32("nan"))


define(
    __name__,
    Prioritized,
    IgnoresPriorities={"sample": lambda self, replay, draws: uniform_sequences(replay, draws)},
    NoPriorities={"loss": lambda self, outputs, batch: Prioritized.loss(self, outputs, batch)[0]},
)
define(__name__, Detached, DetachedProbe={"trains_torso": False})
