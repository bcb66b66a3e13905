"""Updates by hand, skipped updates, and the state that is saved."""

from __future__ import annotations

import copy
import dataclasses
import functools
import threading

import keras
import numpy as np
import pytest
from learners import A3C, CONFIG, Fit, assert_equal_states, make_batch, make_learner, seen, with_vtrace
from rich_task import Rich

from gunreal.config.schema import Config
from gunreal.experience.spec import Spec
from gunreal.learning import backend
from gunreal.learning.registry import named
from gunreal.objectives.dqn import Dqn
from gunreal.records.checkpoint import weights_sha256


class Everything(Rich):
    """Has averages, random numbers, priorities and a state, for batches of `Fit`."""

    name = "fit"

    def length(self, t_max):
        return 3


@pytest.mark.parametrize(
    ("name", "fields", "options"),
    [
        ("adam", {"beta1": 0.8, "beta2": 0.75, "max_grad_norm": 0.05}, {"beta_1": 0.8, "beta_2": 0.75}),
        ("rmsprop", {"rms_decay": 0.5, "rms_initial": 1.0, "max_grad_norm": 1e6}, {"rho": 0.5}),
    ],
)
def test_the_steps_are_those_of_keras(name, fields, options):
    config = Config(optimizer=name, epsilon=0.1, normalize_returns=False, **A3C, **fields)
    learner = make_learner(config)
    names = [name for name in learner.get_state() if name.startswith("weights/")]
    weights = [keras.Variable(learner.get_state()[name]) for name in names]
    kind = {"adam": keras.optimizers.Adam, "rmsprop": keras.optimizers.RMSprop}[name]
    optimizer = kind(0.01, epsilon=0.1, global_clipnorm=config.max_grad_norm, **options)
    optimizer.build(weights)
    for variable in optimizer.variables[2:] if name == "rmsprop" else ():
        variable.assign(np.full(variable.shape, config.rms_initial))
    for step in range(4):
        batch = make_batch(seed=step)
        gradient = [keras.ops.convert_to_tensor(x) for x in learner.gradient(batch).values]
        optimizer.apply(gradient, weights)
        norm = np.sqrt(sum(np.sum(np.square(x)) for x in gradient))
        assert learner.train(batch, 0.01)["grad_norm"] == pytest.approx(norm, rel=1e-4)
        for name, weight in zip(names, weights, strict=True):
            found = learner.get_state()[name]
            np.testing.assert_allclose(found, keras.ops.convert_to_numpy(weight), rtol=1e-5, atol=1e-6, err_msg=name)


def test_train_reports_the_loss_and_applies_the_learning_rate():
    learner, batch = make_learner(Config(**A3C, max_grad_norm=0.0, value_weight=0.3, entropy=0.04)), make_batch()
    before = learner.get_state()
    assert learner.train(batch, 0.0)["skipped"] == 0.0
    rested = learner.get_state()
    moved = []
    for rate in (1e-4, 2e-4):
        learner.set_state(before)
        metrics = learner.train(batch, rate)
        moved.append(learner.get_state()["weights/torso/fc3/kernel"] - before["weights/torso/fc3/kernel"])
    np.testing.assert_array_equal(rested["weights/torso/fc3/kernel"], before["weights/torso/fc3/kernel"])
    np.testing.assert_allclose(moved[1], 2 * moved[0], atol=1e-6)
    assert np.abs(moved[0]).max() > 1e-5
    assert learner.version == 1
    base = metrics["loss_policy"] + 0.3 * metrics["loss_value"] - 0.04 * metrics["entropy"]
    assert metrics["loss_base"] == pytest.approx(base, abs=1e-5)
    assert metrics["loss_total"] == pytest.approx(metrics["loss_base"] + 0.25 * metrics["loss_fit"], abs=1e-5)


def test_the_entropy_weight_of_an_update():
    """It changes from update to update. Without it, the weight is that of the start."""
    learner, batch = make_learner(Config(**A3C, entropy=0.04)), make_batch()
    losses = {weight: learner.gradient(batch, weight).metrics["loss_base"] for weight in (0.0, 0.03, None)}
    entropy = learner.gradient(batch).metrics["entropy"]
    assert losses[0.0] - losses[0.03] == pytest.approx(0.03 * entropy, rel=1e-3)
    assert losses[0.0] - losses[None] == pytest.approx(0.04 * entropy, rel=1e-3)
    before = learner.get_state()
    after = []
    for weight in (0.0, 1.0):
        learner.set_state(before)
        learner.train(batch, 1e-3, weight)
        after.append(learner.get_state())
    assert any(not np.array_equal(after[0][name], after[1][name]) for name in before)


@pytest.mark.parametrize(("correction", "epsilon"), [("epsilon", 0.2), ("vtrace", 0.0)])
def test_the_epsilon_of_the_logarithms_is_that_of_its_correction_only(correction, epsilon):
    from gunreal.learning import losses

    options = {"correction": correction} | ({"log_epsilon": epsilon} if epsilon else {})
    learner, batch = make_learner(Config(objective="a3c", objective_args=options), new=True), make_batch()
    batch = batch if epsilon else with_vtrace(batch)
    batch["base"].pop("past", None)
    logits, _ = learner.predict("base", seen(batch)[:12])
    expected = losses.entropy(logits.reshape(3, 4, -1), batch["base"]["mask"], epsilon)
    assert learner.gradient(batch).metrics["entropy"] == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("objective", ["ppo", "a3c"])
def test_the_policy_loss_is_of_the_ratio_of_the_learned_to_the_acting_policy(objective):
    """PPO clips it to its range. V-trace corrects the advantages by it."""
    from gunreal.learning.losses import vtrace

    options = {"clip": 0.3} if objective == "ppo" else {}
    config = Config(objective=objective, objective_args=options, normalize_returns=False)
    learner, batch = make_learner(config, tasks=(), new=True), make_batch()
    base, mask = batch["base"], batch["base"]["mask"] > 0
    logits, value = (x.reshape(3, 4, *x.shape[1:]) for x in learner.predict("base", seen(batch)[:12]))
    taken = np.take_along_axis(logits, base["action"][..., None], -1)[..., 0]
    log_pi = taken - np.log(np.exp(logits).sum(-1))
    rng = np.random.default_rng(0)
    ratio, advantage = rng.choice(np.float32([0.5, 0.8, 1.2, 1.6]), (3, 4)), rng.normal(size=(3, 4)).astype(np.float32)
    if objective == "ppo":
        base["advantage"] = advantage
        expected = -np.minimum(ratio * advantage, np.clip(ratio, 0.7, 1.3) * advantage)
    else:
        base = {name: array for name, array in with_vtrace(batch)["base"].items() if name != "past"}
        others = {name: base[name] for name in ("reward", "discount", "truncated", "value_t")}
        expected = -log_pi * np.asarray(vtrace(log_rho=np.log(ratio), value=value, **others)[1])
    base["log_mu"] = log_pi - np.log(ratio)
    metrics = learner.train({"base": base}, 1e-3)
    assert metrics["loss_policy"] == pytest.approx(expected[mask].mean(), abs=1e-5)


def test_the_sum_counts_the_steps_that_the_mask_keeps():
    """Ten of twelve; JAX pads the batch's three rollouts to four, which must not count either."""
    batch = make_batch(count=3)
    assert batch["base"]["mask"].sum() == 10
    mean, total = (make_learner(dataclasses.replace(CONFIG, reduction=how)) for how in ("mean", "sum"))
    norm = mean.train(batch, 1e-3)["grad_norm"]
    assert total.train(batch, 1e-3)["grad_norm"] == pytest.approx(10 * norm, rel=1e-4)


def test_threads_compute_gradients_at_the_same_time_and_apply_them_one_after_the_other(monkeypatch):
    learner, alone, batches = make_learner(), make_learner(), [make_batch(seed=seed) for seed in range(2)]
    of_first = [alone._gradient(alone._prepared(batch)) for batch in batches]
    gradient, both, versions = learner._gradient, threading.Barrier(2, timeout=60), {}

    def together(batch):
        computed = gradient(batch)
        both.wait()  # breaks unless the other thread gets here before this one's update is applied
        return computed

    monkeypatch.setattr(learner, "_gradient", together)

    def train(place):
        versions[place] = learner.train(batches[place], 1e-3)["version"]

    threads = [threading.Thread(target=train, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(versions.values()) == [0, 1] and learner.version == 2
    for place in sorted(versions, key=versions.get):
        gradients, _, found = of_first[place]
        alone._apply(gradients, found, 1.0, 1e-3)
    alone.version = 2
    assert_equal_states(learner.get_state(), alone.get_state())


@functools.cache
def learner_of_vectors():
    from gunreal.learning.network import Network

    spec = Spec((3,), 1, "float32", 2, t_max=4)
    return backend.make_learner(Network(spec, (), named("mlp", hidden=8), normalize_observations="element"), CONFIG)


@pytest.mark.parametrize(
    ("rows", "bad"),
    [(5, np.nan), (5, np.inf), (5, 1e25), (slice(None), 1e20), (slice(None), [1e20, -1e20] * 4)],
    ids=["nan", "inf", "large", "mean", "variance"],
)
@pytest.mark.parametrize("masked", [False, True])
def test_observations_that_would_spoil_the_running_moments_are_skipped(rows, bad, masked):
    """A large one is not seen in the loss or the gradients, because normalized observations are clipped."""
    learner, rng = learner_of_vectors(), np.random.default_rng(0)
    base = {"action": np.zeros((2, 4), np.int32), "returns": np.ones((2, 4), np.float32)}
    base |= {"observations": rng.normal(size=(2, 4, 3)).astype(np.float32), "mask": np.ones((2, 4), np.float32)}
    batch = {"base": base}
    learner.train(batch, 1e-3)
    before = learner.get_state()
    spoiled = copy.deepcopy(batch)
    spoiled["base"]["observations"].reshape(8, 3)[rows, 1] = bad
    spoiled["base"]["mask"][1, 1] = not masked
    metrics = learner.train(spoiled, 1e-3)
    assert metrics["skipped"] == 1.0
    assert np.isnan(bad).any() or np.isfinite([metrics["loss_total"], metrics["grad_norm"]]).all()
    assert_equal_states(learner.get_state(), before)
    assert learner.train(batch, 1e-3)["skipped"] == 0.0


@pytest.mark.parametrize(("task", "bad"), [(Fit(), np.nan), (Fit(), 1e30), (Everything(), np.inf)])
def test_non_finite_updates_are_skipped(task, bad):
    learner, batch = make_learner(Config(**A3C), tasks=(task,)), make_batch()
    learner.train(batch, 1e-3)
    before = learner.get_state()
    broken = make_batch()
    broken["base"]["returns"][1, 1] = bad  # 1e30: a finite target whose square is not
    assert learner.train(broken, 1e-3)["skipped"] == 1.0
    assert_equal_states(learner.get_state(), before)
    assert learner.version == 1
    assert learner.train(batch, 1e-3)["skipped"] == 0.0
    assert learner.version == 2


def test_the_loss_of_the_policy_does_not_train_the_value():
    epsilon = {"correction": "epsilon"}
    config = Config(objective="objectives:OfTheAdvantage", objective_args=epsilon, value_weight=0.0, entropy=0.0)
    learner = make_learner(config, tasks=())
    assert learner.train({"base": make_batch()["base"]}, 0.01)["grad_norm"] == 0


@pytest.mark.parametrize(("optimizer", "task"), [("rmsprop", Fit()), ("adam", Everything())])
def test_a_restored_learner_goes_on_exactly(optimizer, task):
    config = dataclasses.replace(CONFIG, optimizer=optimizer)
    learner, other = (make_learner(config, tasks=(task,)) for _ in range(2))
    for seed in range(2):
        learner.train(make_batch(seed=seed), 1e-3)
    state = learner.get_state()
    assert weights_sha256(learner.get_state()) != weights_sha256(other.get_state())
    other.set_state(state)
    assert other.version == 2 and weights_sha256(learner.get_state()) == weights_sha256(other.get_state())
    for each in (learner, other):
        each.train(make_batch(5, seed=2), 1e-3)
    assert_equal_states(learner.get_state(), other.get_state())
    assert weights_sha256(learner.get_state()) == weights_sha256(other.get_state())
    assert any((state[name] != array).any() for name, array in learner.get_state().items())  # the state is a copy


def test_the_hash_of_the_weights_covers_the_running_moments():
    learner = make_learner()
    state, before = learner.get_state(), weights_sha256(learner.get_state())
    learner.set_state({**state, "statistics/return/mean": np.float32(3)})
    assert weights_sha256(learner.get_state()) != before


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_warming_up_changes_nothing(optimizer):
    learner = make_learner(dataclasses.replace(CONFIG, optimizer=optimizer, normalize_returns=True))
    learner.train(make_batch(), 1e-3)
    before = learner.get_state()
    learner.warm_up(make_batch(seed=1))
    assert learner.version == 1
    assert_equal_states(learner.get_state(), before)


def test_a_state_that_does_not_fit_is_refused_as_a_whole():
    learner = make_learner()
    before = learner.get_state()
    with pytest.raises(ValueError, match="weights/fit/0/kernel is missing"):
        learner.set_state(make_learner(tasks=()).get_state())
    with pytest.raises(ValueError, match="weights/fit/0/kernel is unexpected"):
        make_learner(tasks=()).set_state(before)
    with pytest.raises(ValueError, match=r"policy/bias has shape \(7,\) instead of \(3,\)"):
        learner.set_state({**before, "weights/policy/bias": np.zeros(7, np.float32)})
    assert_equal_states(learner.get_state(), before)


def test_the_logits_of_dqn_are_those_of_its_actions():
    """The most valuable action, and now and then a random one."""
    q, _ = make_learner().predict("base", seen(make_batch()))
    options = {"final_exploration": 0.3}
    logits, value = make_learner(dataclasses.replace(CONFIG, objective="dqn", objective_args=options)).predict(
        "base", seen(make_batch())
    )
    expected = np.full(q.shape, 0.1) + 0.7 * (q == q.max(1, keepdims=True))
    np.testing.assert_allclose(np.exp(logits), expected, atol=1e-6)
    np.testing.assert_array_equal(value, q.max(1))
    logits, _ = Dqn().acting(np.array([[0.0, 2.0, 1.0]], np.float32), None, 0.0)
    np.testing.assert_allclose(np.exp(logits), [[0, 1, 0]], atol=1e-6)


def change_settings(settings):
    """Changes global settings of Keras, as a user may for their own models. Returns those before."""
    before = {name: getattr(keras.config, name)() for name in settings}
    for name, value in settings.items():
        getattr(keras.config, f"set_{name}")(value)
    return before


def test_global_settings_of_keras_change_nothing():
    def trained():
        learner = make_learner(Config(**A3C), new=True)
        learner.train(make_batch(), 0.01)
        return learner.get_state(), learner.predict("base", seen(make_batch()))

    expected, outputs = trained()
    mine = {"floatx": "float16", "dtype_policy": "mixed_float16", "epsilon": 0.5, "image_data_format": "channels_first"}
    before = change_settings(mine)
    try:
        state, found = trained()
    finally:
        after = change_settings(before)
    assert {**after, "dtype_policy": after["dtype_policy"].name} == mine
    assert_equal_states(expected, state)
    np.testing.assert_array_equal(outputs[0], found[0])


def test_predictions_use_the_weights_that_are_held():
    """All that predictions read is held: weights, and the moments with which PopArt scales the value."""
    learner, batch = make_learner(Config(**A3C, normalize_returns=True)), make_batch()
    observations = seen(batch)[:4]

    def predicted():
        return np.concatenate([np.asarray(x).ravel() for x in learner.predict("base", observations)])

    newest = [predicted()]
    for _ in range(2):
        learner.train(batch, 0.01)
        newest.append(predicted())
    assert learner.acting_version == 2 and not np.allclose(newest[0], newest[1])
    for version in (2, 3, 4):
        learner.hold()
        held = predicted()
        learner.train(batch, 0.01)
        np.testing.assert_array_equal(predicted(), held)
        assert (learner.version, learner.acting_version) == (version + 1, version)
        if version == 2:
            np.testing.assert_array_equal(held, newest[2])
    learner.hold()
    assert not np.allclose(predicted(), held)
