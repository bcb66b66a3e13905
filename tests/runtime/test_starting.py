"""A new run that starts with the weights of another one."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest
from learners import CONFIG, make_batch, make_learner
from trained import short_run

import gunreal
from gunreal.config.schema import Config, ConfigError
from gunreal.records import checkpoint
from gunreal.runtime import starting, system


def weights(state, part):
    return {name: array for name, array in state.items() if name.startswith(part)}


def test_layers_that_fit_are_copied_with_their_moments():
    source, before = make_learner(seed=1), make_learner(tasks=(), seed=2).get_state()
    source.train(make_batch(), 0.01)
    trained = source.get_state()
    trained["weights/policy/kernel"] = np.zeros((16, 7), np.float32)  # more actions
    after, copied, others = starting.copy_layers(before, trained)
    assert others == ["policy"] and "value" in copied and after.keys() == before.keys()
    for name, array in after.items():
        kept = name.startswith(("weights/policy", "optimizer/", "version"))
        np.testing.assert_array_equal(array, (before if kept else trained)[name], err_msg=name)


def test_averages_start_as_copies_of_the_weights():
    own = {name: np.full(2, i, np.float32) for i, name in enumerate(["weights/torso/a", "average/mine/torso/a"])}
    after, *_ = starting.copy_layers(own, {"weights/torso/a": np.full(2, 7, np.float32)})
    assert all((array == 7).all() for array in after.values())


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run from which others start."""
    return short_run(tmp_path_factory.mktemp("runs"), "first", steps=40)


def test_a_run_starts_from_another_one(first, tmp_path, capsys):
    """A new head is named. Its folder and its file name a run, too."""
    shutil.copytree(first.path, tmp_path / "first")
    first = gunreal.load(tmp_path / "first")
    for i, init in enumerate(("first", str(first.path), str(first.checkpoint))):
        tasks = ("pc", "vr")[: 2 * (i == 0)]
        options = {"init": init, "steps": 40, "learning_rate": 1e-9, "seed": 5, "tasks": tasks}
        run = short_run(tmp_path, f"then{i}", **options)
        end = ", except for pc" if tasks else ""
        assert capsys.readouterr().err.count(f"starts with the weights of {first.checkpoint}{end}\n") == 1
        assert run.step < 100 and run.config.init == init
        new, old = run.learner.get_state(), first.learner.get_state()
        for name, array in weights(new, "weights/torso").items():
            np.testing.assert_allclose(array, old[name], atol=1e-4, err_msg=name)
    assert gunreal.resume(run, steps=80, show=False).step >= 80  # from its own checkpoint
    assert "starts with" not in capsys.readouterr().err


def test_a_run_does_not_start_with_itself(tmp_path):
    with pytest.raises(ConfigError, match="^init: run 'new' not found"):
        short_run(tmp_path, "new", steps=40, init="new")
    assert not (tmp_path / "new").exists()


def test_a_damaged_file_is_named_with_the_others(tmp_path):
    first = checkpoint.save(tmp_path, 40, {"x": np.zeros(3)}, {})
    damaged = first.with_name("step_000000000080.npz")
    damaged.write_bytes(b"")
    with pytest.raises(ConfigError, match="^init: .*step_000000000080.npz is damaged .*; available: 40, 80$"):
        starting.load(Config(init=str(damaged)))


@pytest.mark.parametrize(
    ("field", "before", "now", "moments"),
    [
        ("normalize_returns", True, False, "return"),
        ("normalize_returns", False, True, "return"),
        ("normalize_observations", "element", "off", "observation"),
        ("normalize_observations", "element", "element", "observation"),  # observations with more channels
    ],
)
def test_a_layer_and_the_moments_with_which_it_has_learned_go_together(field, before, now, moments):
    configs = [dataclasses.replace(CONFIG, **{field: value}) for value in (before, now)]
    source, own = (make_learner(config, seed=seed).get_state() for seed, config in enumerate(configs))
    layer = "value"
    if moments == "observation":
        first = next(name for name in own if name.startswith("weights/torso/"))
        layer = first.removeprefix("weights/").rpartition("/")[0]
        if before == now:
            source[first] = np.zeros((3, *source[first].shape[1:]), np.float32)
    merged, copied, others = starting.copy_layers(own, source)
    assert others == [layer] and "policy" in copied and merged.keys() == own.keys()
    for name in merged:
        if name.startswith((f"weights/{layer}", f"statistics/{moments}")):
            np.testing.assert_array_equal(merged[name], own[name], err_msg=name)


@pytest.mark.parametrize(
    ("before", "objective", "anew"),
    [("dqn", "ppo", True), ("a3c", "dqn", True), ("a3c", "ppo", False), ("nowhere:Mine", "ppo", False)],
)
def test_the_policy_of_dqn_is_none_of_an_actor_critic(tmp_path, capsys, before, objective, anew):
    """Its outputs are Q values. An objective of one's own is not imported."""
    own, source = make_learner(seed=1).get_state(), make_learner(seed=2).get_state()
    saved = checkpoint.load(
        tmp_path, checkpoint.save(tmp_path, 40, source, {"config": {"objective": before, "objective_args": {}}})
    )
    merged = starting.adopt(own, saved, (), Config(objective=objective))
    assert capsys.readouterr().err.endswith(", except for policy\n" if anew else ".npz\n")
    for name, array in weights(merged, "weights/").items():
        kept = anew and name.startswith("weights/policy")
        np.testing.assert_array_equal(array, (own if kept else source)[name], err_msg=name)


def test_a_checkpoint_without_any_layer_that_fits_is_refused(tmp_path):
    file = checkpoint.save(
        tmp_path,
        40,
        {"weights/other/kernel": np.zeros(3, np.float32)},
        {"config": {"objective": "ppo", "objective_args": {}}},
    )
    with pytest.raises(ConfigError, match="^init: no layer of .* fits; use the --network of that run"):
        system.begin(make_learner(), Config(init=str(file)), None)
