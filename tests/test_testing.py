import dataclasses

import keras
import numpy as np
import pytest

from gunreal.spec import Field, Spec
from gunreal.tasks.base import Sequence, pad, uniform_sequence
from gunreal.tasks.pixel_control import PixelControl
from gunreal.tasks.reward_prediction import RewardPrediction
from gunreal.tasks.value_replay import ValueReplay
from gunreal.testing import check_task

VECTOR = Spec((3,), 2, "float32", num_actions=2, t_max=4)


@pytest.mark.parametrize("task", [PixelControl, ValueReplay, RewardPrediction])
def test_built_in_tasks_keep_the_contract(task):
    check_task(task)


@pytest.mark.parametrize("task", [ValueReplay(weight=0.0), RewardPrediction()])
def test_on_vectors(task):
    check_task(task, VECTOR)


def test_options_reach_the_task_and_its_refusal_passes_through():
    with pytest.raises(ValueError, match="pc.cell is 99"):
        check_task(PixelControl, cell=99)


class Recording(RewardPrediction):
    """Stores a field of its own; keeps the contract."""

    def record(self, spec):
        return {"depth": Field("depth", (), "float32")}

    def targets(self, replay, sequence, bootstrap):
        return {"class": np.array(replay.get("depth", *sequence).sum() > 0, np.int32)}


def test_recorded_fields():
    check_task(Recording, VECTOR)


class Unpicklable(ValueReplay):
    def __reduce__(self):
        return ValueReplay, ()


class BadName(ValueReplay):
    name = "value replay"


class BadFeatures(ValueReplay):
    features = "pixels"


class NotNone(ValueReplay):
    def sample(self, replay, rng):
        return uniform_sequence(replay, rng) or Sequence(0, 1)


class TooLong(ValueReplay):
    def sample(self, replay, rng):
        drawn = uniform_sequence(replay, rng)
        return drawn and Sequence(drawn.first, replay.spec.t_max + 1)


class Incomplete(ValueReplay):
    def sample(self, replay, rng):
        return Sequence(replay.end - 1, 4) if len(replay) > 10 else None


class TooOld(ValueReplay):
    def sample(self, replay, rng):
        return Sequence(replay.oldest - 1, 2) if replay.oldest else None


class PastTruncation(ValueReplay):
    def sample(self, replay, rng):
        drawn = uniform_sequence(replay, rng)
        return drawn and Sequence(min(drawn.first, replay.end - 4), 4)


class NothingEver(ValueReplay):
    def sample(self, replay, rng):
        return None


class Ragged(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        return {"returns": replay.get("reward", *sequence)}


class Infinite(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        return {"returns": np.full(replay.spec.t_max, np.inf, np.float32)}


class NamesMask(ValueReplay):
    def targets(self, replay, sequence, bootstrap):
        return {"mask": np.zeros(replay.spec.t_max, np.float32)}


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
        return keras.ops.mean((batch["returns"] - outputs["value"]) ** 2)


class DividesByNothing(ValueReplay):
    def loss(self, outputs, batch):
        error = (batch["returns"] - outputs["value"]) ** 2 * batch["mask"]
        return keras.ops.sum(error) / keras.ops.sum(batch["mask"])


class NotFinite(ValueReplay):
    def loss(self, outputs, batch):
        return super().loss(outputs, batch) * float("inf")


class BadGradient(ValueReplay):
    def loss(self, outputs, batch):
        # The gradient of a square root at 0 is infinite, and 0 times that is not a number.
        return keras.ops.sum(keras.ops.sqrt(0.0 * outputs["value"]))


class Detached(ValueReplay):
    def loss(self, outputs, batch):
        return super().loss({"value": keras.ops.stop_gradient(outputs["value"])}, batch)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Unpicklable, "does not come back equal from pickling"),
        (BadName, "name is 'value replay': choose an identifier"),
        (BadFeatures, "features is 'pixels'"),
        (NotNone, "of an empty ring: give None"),
        (TooLong, "length is 5, length\\(\\) allows 1 to 4"),
        (Incomplete, "the complete steps are"),
        (TooOld, "the complete steps are"),
        (PastTruncation, "past a truncated one: end it there"),
        (NothingEver, "sample\\(\\) found nothing in"),
        (Ragged, "shapes and types must not vary"),
        (Infinite, "'returns' of steps .* is not finite"),
        (NamesMask, "targets\\(\\) gives a 'mask'"),
        (NoArray, "'returns' is a list: give a NumPy array"),
        (IgnoresTermination, "'returns' depends on what follows an episode's termination"),
        (LoadsKeras, "must work without Keras"),
        (NoScalar, "give a scalar"),
        (IgnoresMask, "depends on rows whose mask is 0"),
        (DividesByNothing, "where every mask is 0"),
        (NotFinite, "on random experience"),
        (BadGradient, "gradient of loss\\(\\) is not finite"),
        (Detached, "no gradient of loss\\(\\) reaches the torso"),
    ],
)
def test_each_broken_rule_is_named(task, message):
    with pytest.raises(AssertionError, match=message):
        check_task(task, VECTOR)


def test_options_of_plain_dataclasses_are_what_is_checked():
    @dataclasses.dataclass(frozen=True)
    class Local(ValueReplay):
        units: int = 3

    with pytest.raises((AttributeError, AssertionError), match="pickle|import|Local"):
        check_task(Local, VECTOR)  # a class that no other process can import
