"""Rewards of tasks: what the values learn from, and that agents follow them."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import pytest
from liking import Liking, Pairs
from objectives import Penalized
from training import Training

from gunreal.config.resolve import resolved
from gunreal.config.schema import Config, ConfigError
from gunreal.experience.replay import FIRST, RESET, Past
from gunreal.experience.rollouts import read_rollouts
from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import synthetic_segment
from gunreal.learning.backend import make_learner
from gunreal.learning.convolutional import Recurrent
from gunreal.learning.network import Network
from gunreal.learning.registry import named
from gunreal.learning.task import AuxiliaryTask, of_tasks
from gunreal.objectives.a3c import A3c
from gunreal.objectives.ppo import Ppo
from gunreal.tasks.registry import load_tasks
from gunreal.train import check_fit

SPEC = Spec((2,), 1, "float32", num_actions=2, t_max=5, reward_clip=0.5, bonus=True)
AFTER = {name: np.array([x], np.float32) for name, x in (("value", 0), ("bonus", 9), ("bonus_value", -2))}


def test_a_bonus_belongs_to_the_step_that_led_to_its_observation():
    segment = synthetic_segment(SPEC, {}, 60)
    replay, rows = segment.replay(np.zeros(1, int)), segment.arrays
    assert replay.end == 60 and len(rows["reward"][0]) > 60
    slow = [np.clip(rows["reward"][0, t], -0.5, 0.5) + rows["bonus"][0, t + 1] for t in range(60)]
    np.testing.assert_allclose(replay.rewards(np.array([55]), 5)[0], slow[55:])
    read = segment.read(np.zeros(1, int))
    rollouts = read_rollouts(SPEC, read, np.arange(20, 25)[None], AFTER)
    np.testing.assert_allclose(rollouts.reward[0], [*slow[20:24], np.clip(rows["reward"][0, 24], -0.5, 0.5) + 9])


def test_a_discount_gives_it_a_value_of_its_own_that_does_not_end_with_the_episode():
    spec = SPEC._replace(bonus_discount=0.9)
    segment, first = synthetic_segment(spec, {}, 60), np.zeros(1, int)
    rows, flags = {name: array[0] for name, array in segment.arrays.items()}, segment.arrays["flags"][0]
    start = next(t for t in range(60) if flags[t] & RESET) - 2
    rollouts = read_rollouts(spec, segment.read(first), np.arange(start, start + 5)[None], AFTER)
    reward = np.clip(rows["reward"], -0.5, 0.5)
    np.testing.assert_array_equal(segment.replay(first).rewards(first + start, 5)[0], reward[start : start + 5])
    np.testing.assert_array_equal(rollouts.reward[0], reward[start : start + 5])
    bonus, value = ([*rows[name][start : start + 5], AFTER[name][0]] for name in ("bonus", "bonus_value"))
    advantage, slow = 0.0, []
    for t in reversed(range(5)):
        advantage = bonus[t + 1] + 0.9 * value[t + 1] - value[t] + 0.9 * 0.5 * advantage
        slow.insert(0, advantage)
    np.testing.assert_allclose(rollouts.bonus.advantages(0.5)[0], slow, rtol=1e-5)
    np.testing.assert_array_equal(Ppo().part(rollouts)["bonus_log_mu"], rollouts.log_mu)


@pytest.fixture
def both():
    """Random rollouts with bonuses that have a value of their own."""
    spec, rng = SPEC._replace(bonus_discount=0.9), np.random.default_rng(1)
    steps = rng.integers(10, 40, (4, 1)) + np.arange(5)
    after = {name: np.repeat(array, 4) for name, array in AFTER.items()}
    return read_rollouts(spec, synthetic_segment(spec, {}, 60).read(np.zeros(4, int)), steps, after)


LOGITS, VALUE, OTHER = (np.random.default_rng(2).normal(size=size).astype("f4") for size in ((4, 5, 2), (4, 5), (4, 5)))


def loss(objective, rollouts, value=VALUE, **bonus):
    outputs = {"logits": LOGITS, "value": value, "scale": 1.0, "bonus_scale": 1.0, **bonus}
    part = objective.prepared(objective.part(rollouts))
    return float(objective.loss(outputs, {**part, "value_weight": 0.5, "entropy": 0.01})[0])


@pytest.mark.parametrize("objective", [Ppo(), A3c(), A3c(correction="epsilon")], ids=["ppo", "vtrace", "epsilon"])
def test_both_values_and_advantages_are_learned_alike(objective, both):
    swapped = dataclasses.replace(both.bonus, bonus=dataclasses.replace(both, bonus=None))
    found = loss(objective, both, VALUE, bonus_value=OTHER)
    assert found == pytest.approx(loss(objective, swapped, OTHER, bonus_value=VALUE), rel=1e-5)
    assert found != pytest.approx(loss(objective, both, VALUE, bonus_value=OTHER + 1), rel=1e-3)


def test_what_a_policy_loss_has_besides_the_advantage_counts_once(both):
    def of_penalty(rollouts, **bonus):
        one, two = (loss(Penalized(penalty=x), rollouts, **bonus) for x in (1.0, 2.0))
        return two - one

    alone = of_penalty(dataclasses.replace(both, bonus=None))
    assert of_penalty(both, bonus_value=OTHER) == pytest.approx(alone, rel=1e-4) and alone > 0.01


def test_a_new_scale_of_bonuses_leaves_their_value_as_it_is():
    spec, rng = of_tasks(SPEC, [Liking(bonus_discount=0.9)]), np.random.default_rng(1)
    config = resolved(Config(objective="a3c", objective_args={"correction": "epsilon"}))
    learner = make_learner(Network(spec, [], named("mlp", hidden=4), normalize_returns=True), config)
    returns, seen = (rng.normal(size=shape).astype(np.float32) for shape in ((4, 5), (4, 5, 2)))
    base = {"action": np.zeros((4, 5), np.int32), "mask": np.ones((4, 5), np.float32), "observations": seen}
    for scale, mean in ((1, 0), (50, 300)):
        value = learner.predict("bonus", seen[:, 0])[3]
        learner.train({"base": base | {"returns": 0 * returns, "bonus_returns": scale * returns + mean}}, 0.0)
    np.testing.assert_allclose(learner.predict("bonus", seen[:, 0])[3], value, atol=1e-2)
    state = learner.get_state()
    assert state["statistics/bonus_return/mean"] > 100 and state["statistics/return/mean"] == 0


def test_what_does_not_fit_is_refused():
    with pytest.raises(
        ConfigError, match="share one value, but have several values of bonus_discount: liking 0.9, b 0"
    ):
        of_tasks(SPEC, load_tasks(["liking:Liking", "b=liking:Liking"], {"liking": {"bonus_discount": 0.9}}))
    with pytest.raises(ConfigError, match="task 'liking' has bonus_steps 1 and bonus_discount 1.0; use"):
        of_tasks(SPEC, [Liking(bonus_discount=1.0)])
    with pytest.raises(ConfigError, match="task 'pairs' has a bonus of two observations, .* not work with vectors"):
        of_tasks(SPEC._replace(vectors=4), [Pairs()])
    spec = of_tasks(SPEC, [Liking(bonus_discount=0.9)])
    with pytest.raises(ConfigError, match="has a bonus_discount, but dqn has no value for it; use --objective ppo"):
        check_fit(Config(objective="dqn"), spec, [Liking(bonus_discount=0.9)])


def test_a_bonus_of_two_observations_gets_both_and_the_action_in_between():
    config, of_task = resolved(Config(objective="a3c")), of_tasks(SPEC, [Pairs()])
    learner, without = (
        make_learner(Network(of_task, tasks, named("mlp", hidden=4)), config) for tasks in ([Pairs(seen=1.0)], [])
    )
    spec = of_task.acting
    segment, steps, agents = synthetic_segment(SPEC, {}, 60), np.arange(1, 60), np.zeros(59, int)
    observations = np.empty((59, *spec.observation), np.float32)
    segment.gather(agents, steps, observations, spec)
    inputs = observations, segment.past(agents, steps[:, None], spec)
    bonus, none = (each.predict("bonus", *inputs)[2] for each in (learner, without))
    assert not none.any()  # as in an evaluation, which has no tasks
    rows = {name: array[0] for name, array in segment.arrays.items()}
    frame, slow = rows["frame"], []
    for t in steps:
        told = frame[t - 1] @ [1, 10] + frame[t] @ [100, 1000]
        slow.append(0 if rows["flags"][t] & FIRST else 2 * rows["action"][t - 1] + told)
    assert 0 in slow
    np.testing.assert_allclose(bonus, slow, rtol=1e-4)


@dataclasses.dataclass(frozen=True)
class Both(AuxiliaryTask):
    """Gives the features of two observations as a reward."""

    name: ClassVar[str] = "both"
    bonus_steps: ClassVar[int] = 2

    def head(self, spec):
        from keras import layers

        return layers.Identity()

    def bonus(self, outputs, observations, state):
        from keras import ops

        return ops.sum(outputs[:, 0] + 10 * outputs[:, 1], axis=-1)


def test_a_recurrent_network_knows_the_features_of_the_observation_before():
    spec, rng = of_tasks(Spec((1, 28, 28), 1, "uint8", 3, state=8), [Both()]), np.random.default_rng(1)
    network = Network(spec, [Both()], named("lstm", hidden=4))
    seen = rng.integers(0, 256, (6, 2, *spec.observation), dtype=np.uint8)
    start, reward = rng.normal(size=(6, 8)).astype(np.float32), rng.normal(size=(6, 2)).astype(np.float32)
    past = Past(start, rng.integers(0, 3, (6, 2)).astype(np.int32), reward, np.zeros((6, 2, 0), np.float32))
    hidden = np.reshape(network.torso.features(seen.reshape(12, *spec.observation)).hidden, (6, 2, -1))
    (before, now), state = np.swapaxes(network.torso.unroll(hidden, past)[0], 0, 1), start
    for t in range(2):
        of_step = Past(state, *(array[:, t : t + 1] for array in past[1:]))
        pair = seen[:, [max(t - 1, 0), t]].reshape(6, *spec.acting.observation)
        *_, bonus, state = network.predict("bonus", pair, of_step)
    np.testing.assert_allclose(bonus, before.sum(-1) + 10 * now.sum(-1), rtol=1e-4, atol=1e-4)
    with pytest.raises(ConfigError, match="the state of the cell of the lstm network does not begin with its output"):
        Network(spec._replace(state=10), [Both()], Stacked(hidden=5))


class Stacked(Recurrent):
    """Two cells, of which the state of the first one comes first."""

    def state(self):
        return 10

    def cell(self, seed):
        from keras import layers

        return layers.StackedRNNCells([layers.GRUCell(self.hidden) for _ in range(2)])


@pytest.mark.parametrize(
    ("runner", "task", "discount"),
    [("serial --steps 4000 --min_batch 160", "Liking", 0), ("device --steps 16000", "Pairs", 0.9)],
)
def test_agents_follow_it_and_scores_do_not_contain_it(tmp_path, runner, task, discount):
    """At random, it would be at 7 / 16: the first of eight observations has no last action."""
    pytest.importorskip("jax")
    name = task.lower()
    common = f"--env liking:make --tasks liking:{task},vr --replay_size 100 --agents 8 --hidden 16 --learning_rate 5e-3"
    common += f" --metrics_seconds 0.2 --task {name}.bonus_discount={discount}"
    with Training(tmp_path, *f"{common} --runner {runner}".split()) as run:
        assert run.end() == 0, run.stderr
        last = [line for line in run.lines() if line.get(f"{name}_share") is not None][-1]  # with updates
    assert last[f"{name}_share"] > 0.6 and last["score_mean"] == 0
    assert last["value_mean"] < 0.5 if discount else last["value_mean"] > 1
