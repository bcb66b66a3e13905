"""Tasks that each break one rule of the contract, and two that keep it; for tests in tasks/.

Not in the test module itself: agent processes import a task's module, and that must not import Keras.
"""

import numpy as np
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


class TooLong(ValueReplay):
    def sample(self, replay, draws):
        first, length = uniform_sequences(replay, draws)
        return Sequences(first, length * 0 + replay.spec.t_max + 1)


class Incomplete(ValueReplay):
    def sample(self, replay, draws):
        first, length = uniform_sequences(replay, draws)
        return Sequences(first * 0 + replay.end - 1, length * 0 + 4)


class TooOld(ValueReplay):
    def sample(self, replay, draws):
        first, length = uniform_sequences(replay, draws)
        return Sequences(first * 0 + replay.oldest - 1, length)


class PastTruncation(ValueReplay):
    def sample(self, replay, draws):
        first, length = uniform_sequences(replay, draws)
        return Sequences(replay.xp.minimum(first, replay.end - 4), replay.xp.where(length > 0, 4, 0))


class NothingEver(ValueReplay):
    def sample(self, replay, draws):
        first, length = uniform_sequences(replay, draws)
        return Sequences(first, 0 * length)


class NoPair(ValueReplay):
    def sample(self, replay, draws):
        return replay.oldest, 1


class Unrepeatable(ValueReplay):
    def sample(self, replay, draws):
        return uniform_sequences(replay, np.random.random(draws.shape).astype(np.float32))


class LoopsOverData(ValueReplay):
    """Works with NumPy, and cannot be compiled."""

    def sample(self, replay, draws):
        first, length = uniform_sequences(replay, draws)
        return Sequences(first, np.array([int(number) for number in length]))


class OfAllAgents(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        returns = super().targets(replay, sequences, bootstraps)["returns"]
        return {"returns": returns - returns.mean()}


class RandomTargets(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        returns = super().targets(replay, sequences, bootstraps)["returns"]
        return {"returns": returns + np.random.random(returns.shape).astype(np.float32)}


class OtherInJax(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        returns = super().targets(replay, sequences, bootstraps)["returns"]
        return {"returns": returns if replay.xp is np else 2 * returns}


class Ragged(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        return {"returns": replay.get("reward", sequences.first, int(sequences.length.max()))[0]}


class Infinite(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        return {"returns": np.full((len(bootstraps), replay.spec.t_max), np.inf, np.float32)}


class Doubles(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        return {"returns": np.zeros((len(bootstraps), replay.spec.t_max))}


class NamesMask(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        return {"mask": np.zeros((len(bootstraps), replay.spec.t_max), np.float32)}


class NoTable(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        super().targets(replay, sequences, bootstraps)


class Words(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        return {"returns": np.full(len(bootstraps), "good")}


class Misspells(ValueReplay):
    def loss(self, outputs, batch):
        return batch["return"]


class NoArray(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        return {"returns": [0.0] * len(bootstraps)}


class IgnoresTermination(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        rewards = pad(replay.get("reward", sequences.first, replay.spec.t_max), sequences.length)
        return {"returns": rewards[:, ::-1].cumsum(axis=1)[:, ::-1] + bootstraps[:, None]}


class LoadsKeras(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        import keras  # noqa: F401

        return super().targets(replay, sequences, bootstraps)


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


class UnusedAverage(ValueReplay):
    average = 0.1


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


class DetachedProbe(Detached):
    trains_torso = False


class Scheduled(ValueReplay):
    """Has a metric, and a loss that falls over the training; keeps the contract."""

    def loss(self, outputs, batch):
        loss = super().loss(outputs, batch)
        return loss * (1 - batch["progress"]), {"progress": batch["progress"]}


class NamesProgress(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        return super().targets(replay, sequences, bootstraps) | {"progress": 0 * bootstraps}


class Random(ValueReplay):
    def loss(self, outputs, batch):
        from keras import random

        return super().loss(outputs, batch) * (1 + random.uniform(()))


class BonusesOfFeatures(ValueReplay):
    def bonus(self, outputs, observations, state):
        return observations


class BonusesOfTheBatch(ValueReplay):
    def bonus(self, outputs, observations, state):
        from keras import ops

        return outputs["value"][:, 0] - ops.mean(observations)


class IgnoresPriorities(Prioritized):
    def sample(self, replay, draws):
        return uniform_sequences(replay, draws)


class NoPriorities(Prioritized):
    def loss(self, outputs, batch):
        return super().loss(outputs, batch)[0]


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


class NoSequences(ValueReplay):
    replays = 0
