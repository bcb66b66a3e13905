"""What every built-in task keeps: the contract, the layers that its loss reaches, and the options that it refuses."""

from __future__ import annotations

import pytest
from gradients import reached
from rings import draws, episodes, make_segment, targets

from gunreal.config.schema import ConfigError
from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import synthetic_segment
from gunreal.tasks.contrastive import Contrastive
from gunreal.tasks.depth_prediction import DepthPrediction
from gunreal.tasks.feature_control import FeatureControl
from gunreal.tasks.multi_horizon import MultiHorizon
from gunreal.tasks.pixel_control import PixelControl
from gunreal.tasks.registry import load_tasks
from gunreal.tasks.reward_prediction import RewardPrediction
from gunreal.tasks.self_imitation import SelfImitation
from gunreal.tasks.self_prediction import SelfPrediction
from gunreal.tasks.terminal_prediction import TerminalPrediction
from gunreal.tasks.value_replay import ValueReplay
from gunreal.testing import IMAGES, check_task

LATER = (Contrastive(steps=3), MultiHorizon(), SelfImitation(), SelfPrediction(steps=3), TerminalPrediction())
VECTOR = Spec((3,), 2, "float32", num_actions=2, t_max=4)
ATARI = Spec((1, 84, 84), 4, "uint8", 6)


@pytest.mark.parametrize(
    ("task", "spec"),
    [
        (PixelControl(), IMAGES),
        (ValueReplay(), IMAGES),
        (ValueReplay(weight=0.0), VECTOR),
        (ValueReplay(), VECTOR._replace(state=5)),
        (RewardPrediction(), IMAGES),
        (RewardPrediction(), VECTOR),
        (DepthPrediction(rows=2, columns=5, edges=(64, 128)), IMAGES),
        (FeatureControl(), IMAGES),
        (FeatureControl(reward="change"), IMAGES),
        *((task, spec) for task in LATER for spec in (IMAGES, VECTOR)),
    ],
    ids=lambda x: x.dtype if isinstance(x, Spec) else x.name,
)
def test_the_contract(task, spec):
    check_task(task, spec)


@pytest.mark.parametrize(
    ("task", "options", "actor_critic"),
    [
        (Contrastive(steps=3, units=4), {}, False),
        (DepthPrediction(), {}, False),
        (FeatureControl(), {}, False),
        (MultiHorizon(discounts=(0.9,)), {"bootstrap_shape": (1,)}, False),
        (SelfPrediction(steps=3, units=4), {}, False),
        (TerminalPrediction(), {"bootstrap_shape": ()}, False),
        (SelfImitation(), {"bootstrap_shape": ()}, True),
    ],
    ids=lambda x: getattr(x, "name", None),
)
def test_the_gradient_reaches_the_whole_torso(task, options, actor_critic):
    """And the head of the task or, for self-imitation, those of the actor-critic."""
    torso, heads = {"torso/conv1", "torso/conv2", "torso/fc3"}, {"policy", "value"}
    wanted = (torso | heads, set()) if actor_critic else ({*torso, task.name}, heads)
    assert reached(task, synthetic_segment(IMAGES, task.record(IMAGES), 200), **options) == wanted


@pytest.mark.parametrize("task", [Contrastive(), SelfPrediction()], ids=lambda task: task.name)
def test_targets_of_tasks_that_predict_later_steps_are_the_actions(task):
    segment = make_segment(VECTOR, episodes("-t --T -"), actions=[2, 1, 0, 1, 2, 2, 0, 1])
    assert targets(task, segment, (0, 2))["action"].tolist() == [2, 1, 0, 0]
    assert targets(task, segment, (3, 4))["action"].tolist() == [1, 2, 2, 0]
    assert draws(task, make_segment(VECTOR, episodes("---"))) == [None]


@pytest.mark.parametrize(
    ("task", "spec", "message"),
    [
        (PixelControl(), VECTOR, "pc needs image observations .* float32 3: leave pc out"),
        (PixelControl(), ATARI._replace(dtype="float32"), "pc needs image observations"),
        (PixelControl(), ATARI._replace(frame=(1, 3, 84)), "pc needs frames of 4x4 pixels or more, but these are 3x84"),
        (PixelControl(cell=4), ATARI._replace(frame=(1, 12, 84)), "pc.cell is 4: .*choose 1 to 3 for frames of 12x84"),
        (PixelControl(cell=-1), ATARI, "pc.cell is -1: leave it out, or choose 1 to 21"),
        (DepthPrediction(), VECTOR, "depth needs image observations and a uint8 map 'depth'.* float32 3: leave depth"),
        (DepthPrediction(rows=19), IMAGES, "depth.rows is 19: choose 1 to 18 for frames of 36x36 pixels"),
        (DepthPrediction(columns=0), IMAGES, "depth.columns is 0: choose 1 to 36"),
        (DepthPrediction(edges=()), IMAGES, r"depth.edges is \[\]: give ascending numbers from 1 to 255"),
        (DepthPrediction(edges=(5, 5)), IMAGES, r"depth.edges is \[5, 5\]"),
        (DepthPrediction(edges=(0, 5)), IMAGES, "depth.edges"),
        (DepthPrediction(edges=(5, 256)), IMAGES, "depth.edges"),
        (MultiHorizon(discounts=()), VECTOR, r"mh.discounts is \[\]: choose one or more values from 0 to 1, below 1"),
        (MultiHorizon(discounts=(1.0,)), VECTOR, r"mh.discounts is \[1.0\]"),
        (MultiHorizon(discounts=(0.9, -0.1)), VECTOR, r"mh.discounts is \[0.9, -0.1\]"),
        *(
            (make(**options), VECTOR._replace(t_max=t_max), rf"^{make.name}{message}")
            for make, steps in ((Contrastive, 8), (SelfPrediction, 5))
            for t_max, options, message in [
                (1, {}, " predicts later steps of a sequence: raise t_max to 2 or more"),
                (5, {}, rf"\.steps is {steps}: choose a value from 1 to 4, below t_max"),
                (20, {"steps": 0}, r"\.steps is 0: choose a value from 1 to 19"),
            ]
        ),
    ],
)
def test_the_check_names_the_fix(task, spec, message):
    with pytest.raises(ValueError, match=message):
        task.check(spec)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("pc.discount", 1.5, "at least 0 and at most 1"),
        ("fc.discount", 1.0, "at least 0 and below 1"),
        ("fc.reward", "novelty", "one of activation, change"),
        ("sil.value_weight", -1.0, "at least 0"),
        ("tp.discount", -0.1, "at least 0 and below 1"),
        ("cpc.units", 0, "at least 1"),
    ],
)
def test_options_have_limits(name, value, rule):
    task, option = name.split(".")
    with pytest.raises(ConfigError, match=f"^{name} is {value!r}, but must be {rule}"):
        load_tasks([task], {task: {option: value}})
    with pytest.raises(AssertionError, match=f"^{name} is {value!r}, but must be {rule}"):
        check_task(type(*load_tasks([task])), VECTOR, **{option: value})


def test_the_defaults_are_the_papers():
    pc, fc = PixelControl(), FeatureControl()
    assert (pc.name, pc.features, pc.discount, pc.weight, pc.length(20)) == ("pc", "hidden", 0.9, 0.01, 20)
    assert (fc.name, fc.features, fc.discount, fc.reward) == ("fc", "hidden", 0.9, "activation")
