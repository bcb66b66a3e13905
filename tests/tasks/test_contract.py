import broken_tasks
import numpy as np
import pytest

from gunreal.experience.sequences import pad
from gunreal.experience.spec import Spec
from gunreal.tasks.pixel_control import PixelControl
from gunreal.tasks.value_replay import ValueReplay
from gunreal.testing import IMAGES, check_task

VECTOR = Spec((3,), 2, "float32", num_actions=2, t_max=4)


class FractionalLength(ValueReplay):
    def length(self, t_max):
        return 2.0


class NoLength(ValueReplay):
    def length(self, t_max):
        return 0


class RewardsOfTheNextEpisode(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        rewards = pad(replay.get("reward", sequences.first, replay.spec.t_max), sequences.length)
        return {"returns": rewards[:, ::-1].cumsum(axis=1)[:, ::-1]}


class BootstrapsFromTheNextEpisode(ValueReplay):
    def targets(self, replay, sequences, bootstraps):
        return {"returns": super().targets(replay, sequences, bootstraps)["returns"] + bootstraps[:, None]}


def test_rollouts_may_be_long():
    check_task(ValueReplay, VECTOR._replace(t_max=20))


def test_options_reach_the_task_and_its_refusal_passes_through():
    with pytest.raises(ValueError, match="pc.cell is 99"):
        check_task(PixelControl, cell=99)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (broken_tasks.Unpicklable, "is not equal to its pickled copy"),
        (broken_tasks.RecordsReward, "records 'reward', a reserved name"),
        (broken_tasks.Unannotated, "Unannotated.weight has no effect as an option; annotate it"),
        (broken_tasks.Unannotated(), "Unannotated.weight has no effect as an option; annotate it"),
        (int, "does not inherit from gunreal.AuxiliaryTask"),
        (broken_tasks.BadName, "name is 'value replay': choose an identifier"),
        (broken_tasks.OfAScript, "other processes cannot import the class: define it in a module"),
        (broken_tasks.OfABatch, "name is 'past': choose an identifier other than base, .*past"),
        (broken_tasks.BadFeatures, "features is 'pixels'"),
        (FractionalLength, r"length\(\) is 2.0: return an int of 1 or more"),
        (NoLength, r"length\(\) is 0: return an int of 1 or more"),
        (broken_tasks.TooLong, r"sample\(\) returns 5 steps, but length\(\) allows 0 to 4"),
        (broken_tasks.Incomplete, r"sample\(\) returns steps 0 to 3, but the replay holds steps 0 to 0$"),
        (broken_tasks.Unrepeatable, r"sample\(\) returned other sequences for the same draws"),
        (broken_tasks.LoopsOverData, r"sample\(\) in JAX failed: ConcretizationTypeError"),
        (broken_tasks.OfAllAgents, "target 'returns' of an agent depends on the other agents: keep to its row"),
        (broken_tasks.RandomTargets, "target 'returns' differs in a second call: use no random numbers"),
        (broken_tasks.OtherInJax, "target 'returns' differs between JAX and NumPy"),
        (broken_tasks.PastTruncation, "past a truncated step: end it there"),
        (broken_tasks.NothingEver, "sample\\(\\) found nothing in"),
        (broken_tasks.Infinite, "'returns' is not finite"),
        (broken_tasks.IgnoresTermination, "'returns' depends on what follows an episode's termination"),
        (RewardsOfTheNextEpisode, "'returns' depends on what follows an episode's termination"),
        (BootstrapsFromTheNextEpisode, "'returns' depends on what follows an episode's termination"),
        (broken_tasks.LoadsKeras, "must work without Keras.*; import Keras inside head, loss and bootstrap$"),
        (broken_tasks.IgnoresMask, "depends on rows whose mask is 0"),
        (broken_tasks.IgnoresMaskOfOutputs, "depends on rows whose mask is 0"),
        (broken_tasks.DividesByNothing, "when every mask is 0"),
        (broken_tasks.NotFinite, "on random experience"),
        (broken_tasks.BadGradient, "gradient of loss\\(\\) is not finite"),
        (broken_tasks.Random, r"for the same batch: use no random numbers but net.draws$"),
        (broken_tasks.DetachedProbe, r"loss\(\) has no gradient: use all of the head in the loss"),
        (broken_tasks.UnusedAverage, "has averages, but no head whose call\\(\\) has an argument net to use them"),
        (broken_tasks.CountsMasked, "the new state/vr/sum depends on rows whose mask is 0: leave them out"),
        (broken_tasks.SpoilsState, "the new state/vr/sum is not finite when every mask is 0: leave it as it is"),
        (broken_tasks.OtherState, r"loss\(\) returns the state 'sums', which state\(\) does not have; it has sum$"),
        (broken_tasks.BonusesOfFeatures, r"bonus\(\) returns shape \(.*, \d+\); return one number for each"),
        (broken_tasks.BonusesOfTheBatch, "bonus\\(\\) of an observation depends on the others in the batch"),
        (broken_tasks.IgnoresPriorities, r"sample\(\) does not depend on the priorities: use prioritized_sequences"),
        (broken_tasks.NoPriorities, r"loss\(\) returns no metric 'priority' of shape \[B\] or \[B, T\]; add it"),
        (broken_tasks.NegativePriorities, r"loss\(\) returns priorities below 0"),
        (broken_tasks.PrioritiesOfPadding, "the new vr.priority depends on rows whose mask is 0: leave them out"),
        (broken_tasks.NoWeights, r"sample\(\) returns unusable weights \(float32 \[\d+\]\); return finite ones"),
        (broken_tasks.NoSequences, "replays is 0: choose an int of 1 or more"),
        (broken_tasks.Detached, "no gradient of loss\\(\\) reaches the torso"),
    ],
)
def test_each_broken_rule_is_named(task, message):
    with pytest.raises(AssertionError, match=message) as error:
        check_task(task, VECTOR)
    assert "\n" not in str(error.value)


def test_images_are_checked_with_a_recurrent_network_too():
    with np.errstate(divide="ignore", invalid="ignore"), pytest.raises(AssertionError, match="is not finite"):
        check_task(broken_tasks.ForgetsTheState)
    check_task(broken_tasks.RefusesMemory)


@pytest.mark.parametrize("task", [broken_tasks.Recording, broken_tasks.Scheduled])
def test_recorded_fields_metrics_and_progress(task):
    check_task(task, VECTOR)


@pytest.mark.parametrize(("state", "network"), [(0, "small"), (16, "lstm")])
def test_images_that_are_too_small_for_the_network(state, network):
    with pytest.raises(ValueError, match=rf"frames of \(1, 16, 16\) are too small for the {network} network"):
        check_task(ValueReplay, IMAGES._replace(frame=(1, 16, 16), state=state))
