"""The contract's check finds batch forms that do not do what the NumPy form does."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from rings import VECTOR

from gunreal.experience.synthetic import synthetic_segment
from gunreal.tasks.base import ReplaySequence
from gunreal.tasks.batch_contract import broken_rule, has_batch_form
from gunreal.tasks.batched import Sequences, uniform_sequences
from gunreal.tasks.feature_control import FeatureControl
from gunreal.tasks.registry import load_tasks
from gunreal.tasks.reward_prediction import RewardPrediction
from gunreal.tasks.value_replay import ValueReplay

SEGMENT = synthetic_segment(VECTOR, {}, 400)


class WithoutSkew(RewardPrediction):
    def sample_batch(self, replay, draws):
        draws = np.concatenate([np.where(draws[:, :1] < 1 / 3, 0.9, 0.1), draws[:, 1:]], 1)
        return super().sample_batch(replay, draws.astype(np.float32))


class Later(ValueReplay):
    def sample_batch(self, replay, draws):
        first, length = super().sample_batch(replay, draws)
        return Sequences(first + 1, length)


class OtherReturns(ValueReplay):
    def targets_batch(self, replay, sequences, bootstraps):
        return super().targets_batch(replay, sequences, 2 * bootstraps)


class OtherNames(ValueReplay):
    def targets_batch(self, replay, sequences, bootstraps):
        return {"values": bootstraps}


class OtherShape(ValueReplay):
    def targets_batch(self, replay, sequences, bootstraps):
        return {"returns": bootstraps}


class OtherType(ValueReplay):
    def targets_batch(self, replay, sequences, bootstraps):
        returns = super().targets_batch(replay, sequences, bootstraps)["returns"]
        return {"returns": np.asarray(returns).astype(np.int32)}


class AcrossTerminations(FeatureControl):
    def sample_batch(self, replay, draws):
        return uniform_sequences(replay, draws)


@pytest.mark.parametrize("name", ["vr", "rp", "fc", "cpc", "spr", "mh", "tp", "sil"])
def test_the_built_in_tasks_keep_it(name):
    (task,) = load_tasks([name])
    shape = {"vr": (), "fc": (2, 5), "mh": (4,), "tp": (), "sil": ()}.get(name)
    assert has_batch_form(task) and broken_rule(task, SEGMENT, shape) is None


@pytest.mark.parametrize(
    ("task", "shape", "message"),
    [
        (WithoutSkew(), None, "other probabilities"),
        (Later(), (), "which sample\\(\\) never draws"),
        (AcrossTerminations(), (2, 5), "which sample\\(\\) never draws"),
        (OtherReturns(), (), "target 'returns' of targets_batch\\(\\) differs"),
        (OtherNames(), (), r"returned \['values'\], but targets\(\) \['returns'\]"),
        (OtherType(), (), r"is int32 \(50, 4\) instead of float32 \(50, 4\)"),
        (OtherShape(), (), r"is float32 \(50,\) instead of float32 \(50, 4\)"),
    ],
)
def test_a_broken_rule_is_named(task, shape, message):
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(broken_rule(task, SEGMENT, shape))


class Reversed(ValueReplay):
    """Inherits a batch form that does not belong to its own targets."""

    def targets(self, replay, sequence, bootstrap):
        return {"returns": -super().targets(replay, sequence, bootstrap)["returns"]}


class Oldest(ValueReplay):
    def sample(self, replay, rng):
        return ReplaySequence(replay.oldest, 1) if len(replay) else None


def test_an_inherited_batch_form_belongs_to_the_inherited_form_only():
    assert not has_batch_form(Reversed()) and not has_batch_form(Oldest())
    assert has_batch_form(dataclasses.replace(ValueReplay(), weight=2.0)) and has_batch_form(OtherReturns())
    (depth,) = load_tasks(["depth"])
    assert not has_batch_form(depth)
