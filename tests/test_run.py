from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from helpers import FakeLearner
from trained import catch_run

import gunreal
from gunreal.acting.predictor import sample_actions
from gunreal.config.files import save
from gunreal.envs.make import describe, make
from gunreal.records import checkpoint, interface


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return gunreal.load(catch_run(tmp_path_factory.getbasetemp()))


@pytest.fixture
def observations(run):
    return np.random.default_rng(0).integers(0, 256, (6, *run.spec.observation), np.uint8)


def test_description_of_a_run(run):
    assert run.config.env == "gunreal/Catch-v0" and run.config.name == run.path.name == "catch"
    assert run.metrics[-1]["stopped_by"] == "steps" and run.metrics[-1]["step"] == run.step >= 400
    assert run.spec.observation == (4, 84, 84) and run.spec.num_actions == 3
    assert [task.name for task in run.tasks] == ["pc"]
    assert run.checkpoint == run.path / "checkpoints" / f"step_{run.step:012d}.npz"
    assert checkpoint.weights_sha256(run.learner.get_state()) == run.metrics[-1]["weights_sha256"]
    assert repr(run) == f"<gunreal.Run {run.path}: gunreal/Catch-v0, ppo, tasks pc>"


def test_keras_is_loaded_when_the_network_is_asked_for(run):
    code = (
        "import sys, gunreal, gunreal.run, gunreal.evaluate, gunreal.records.video\n"
        f"run = gunreal.load({str(run.path)!r})\n"
        "run.config, run.metrics, run.tasks, run.spec\n"
        "print([name for name in ('keras', 'tensorflow', 'jax') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_act_is_the_learners_policy(run, observations):
    logits, _ = run.learner.predict("base", observations)
    actions = run.act(observations)
    assert actions.dtype == np.int32 and actions.tolist() == logits.argmax(1).tolist()
    drawn = run.act(observations, np.random.default_rng(3))
    assert drawn.tolist() == sample_actions(logits, np.random.default_rng(3))[0].tolist()
    single = run.act(observations[2])
    assert single.shape == () and single.dtype == np.int32 and single == actions[2]


def test_act_takes_only_what_fits(run, observations):
    for wrong in (observations / 255, observations[0, :3], observations[None], observations.astype(np.int64)):
        for function in (run.act, run.features):
            with pytest.raises(ValueError, match=r"stacked observations are uint8 \[4, 84, 84\], or a batch"):
                function(wrong)


def test_features_are_what_policy_and_value_see(run, observations):
    features = run.features(observations)
    state = run.learner.get_state()
    dense = {name: state[f"weights/{name}"] for name in ("policy/kernel", "policy/bias")}
    logits = features @ dense["policy/kernel"] + dense["policy/bias"]
    np.testing.assert_allclose(logits, run.learner.predict("base", observations)[0], atol=1e-4)
    assert features.dtype == np.float32 and features.shape == (6, dense["policy/kernel"].shape[0])
    np.testing.assert_allclose(run.features(observations[2]), features[2], rtol=1e-5, atol=1e-4)


def test_an_environment_takes_further_arguments(run):
    env = run.make_env(render_mode="rgb_array", rows=7)
    env.reset(seed=1)
    assert env.render().ndim == 3 and env.unwrapped.rows == 7 and not run.config.env_args
    with pytest.raises(gunreal.ConfigError, match="env_args do not fit gunreal/Catch-v0: .*'color'"):
        run.make_env(color="red")


def changed(run, folder, **fields):
    """A copy of a run with other settings."""
    copied = shutil.copytree(run.path, folder / "changed")
    save(dataclasses.replace(run.config, **fields), copied / "config.toml")
    return gunreal.load(copied)


def test_a_policy_needs_neither_the_environment_nor_its_package(run, tmp_path):
    gone = changed(run, tmp_path, env="not_installed:Gone-v0")
    with pytest.raises(gunreal.ConfigError, match="no module 'not_installed'"):
        gone.make_env()
    policy, env = gone.policy(sample=False), run.make_env()
    assert policy.reset() >= 0
    observation, _ = env.reset(seed=1)
    assert policy.act(observation) == run.act(np.repeat(observation.transpose(2, 0, 1), 4, axis=0))
    assert run.spec == gone.spec == interface.load(run.path)[0] == describe(run.config)


def test_a_policy_does_not_need_the_tasks(run, observations, tmp_path):
    gone = changed(run, tmp_path, tasks=("not_installed:Gone",), task={})
    with pytest.raises(gunreal.ConfigError, match="not_installed"):
        _ = gone.learner
    assert gone.act(observations).tolist() == run.learner.predict("base", observations)[0].argmax(1).tolist()
    assert gone.evaluate(3, seed=2).tolist() == run.evaluate(3, seed=2).tolist()
    assert gone.export(tmp_path / "policy.keras").exists()


def test_a_run_without_a_saved_interface_opens_its_environment(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "old")
    (tmp_path / "old" / interface.FILE).unlink()
    assert gunreal.load(tmp_path / "old").spec == run.spec
    (tmp_path / "old" / interface.FILE).write_text("{}")
    with pytest.raises(gunreal.ConfigError, match=r"cannot read .*spec.json \(KeyError.*; delete it"):
        _ = gunreal.load(tmp_path / "old").spec


def test_act_scales_bytes_as_training_does(tmp_path):
    run = gunreal.Run(tmp_path, gunreal.Config(env="scripted_env:Memory-v0"))
    learner = FakeLearner()
    run.__dict__["actor_critic"] = learner
    run.act(np.array([0, 128, 255], np.uint8))
    with contextlib.closing(make(run.config, 1)) as env:
        trained = env.step(np.zeros(1, np.int32), np.ones(1, bool), np.zeros(1, np.int64)).frame
    ((_, acted),) = learner.asked
    np.testing.assert_array_equal(acted, trained)
    assert acted.dtype == np.float32 and acted.max() == 1.0


def test_evaluate_gives_scores(run):
    scores = run.evaluate(5, seed=2)
    assert scores.dtype == np.float64 and scores.shape == (5,) and set(scores) <= {-1.0, 1.0}
    assert scores.tolist() == run.evaluate(5, seed=2).tolist()
    with pytest.raises(ValueError, match="cannot play 0 episodes"):
        run.evaluate(0)


def test_best_and_a_path(run, monkeypatch):
    best = gunreal.load(run.path, "best")
    assert best.checkpoint.name == "best.npz" and best.step <= run.step
    monkeypatch.chdir(run.path)
    from_here = gunreal.load(run.path, run.checkpoint.relative_to(run.path))
    monkeypatch.chdir("/")
    assert from_here.step == run.step
    with pytest.raises(FileNotFoundError, match="no checkpoint .*none.npz; available: best, "):
        gunreal.load(run.path, run.path / "none.npz")


def test_a_run_without_metrics_or_checkpoints(run, tmp_path):
    shutil.copy(run.path / "config.toml", tmp_path)
    empty = gunreal.load(tmp_path)
    assert empty.metrics == []
    with pytest.raises(FileNotFoundError, match="has no checkpoint yet; wait for the first one, or resume"):
        empty.act(np.zeros((4, 84, 84), np.uint8))


def test_a_checkpoint_of_another_run(run, tmp_path):
    other = checkpoint.save(tmp_path, 7, {"weights/conv1/kernel": np.zeros(3), "version": np.array(1)}, {})
    with pytest.raises(gunreal.ConfigError, match="is not a checkpoint of .*catch: the state does not fit"):
        _ = gunreal.load(run.path, other).learner
    with pytest.raises(gunreal.ConfigError, match="is not a checkpoint of .*torso/.* is missing"):
        gunreal.load(run.path, other).policy()


TASK = """
from keras import ops
from gunreal.tasks.value_replay import ValueReplay

class Mine(ValueReplay):
    name = "mine"
"""


@pytest.mark.parametrize("command", ["gunreal.Run('.', config).tasks", "prepare(config)"])
def test_a_task_that_imports_keras_gets_the_backend_of_the_run(tmp_path, command):
    """TensorFlow is Keras's own choice."""
    pytest.importorskip("jax")
    (tmp_path / "of_keras.py").write_text(TASK)
    code = (
        "import os, sys, gunreal\n"
        "from gunreal.train import prepare\n"
        "config = gunreal.Config(env='gunreal/Catch-v0', backend='jax', tasks=('of_keras:Mine',))\n"
        f"{command}\n"
        "print(sys.modules['keras'].backend.backend(), 'tensorflow' in sys.modules, 'KERAS_BACKEND' in os.environ)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout == "jax False False\n", done.stderr


def test_plot_draws_the_runs_own_curve(run, tmp_path):
    pytest.importorskip("matplotlib")
    assert run.plot(tmp_path / "a.svg", x="seconds", y="updates", smooth=3) == tmp_path / "a.svg"
    picture = (tmp_path / "a.svg").read_text()
    assert picture.startswith("<?xml") and "updates" in picture and "moving mean over 3" in picture
    assert run.plot() == run.path / "curve.png" and run.plot().read_bytes().startswith(b"\x89PNG")
    with pytest.raises(gunreal.ConfigError, match="has no values of eval_scores over eval_step"):
        run.plot(y="eval_scores")


def test_video_is_of_one_new_episode(run, tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = run.video(str(tmp_path / "a.mp4"), seed=3, max_steps=4)
    assert path == tmp_path / "a.mp4"
    assert len(list(ffmpeg.read_frames(str(path)))) == 1 + 5  # the first tells the size; four steps have five pictures
    with pytest.raises(gunreal.ConfigError, match="FILE.mp4"):
        run.video("a.avi")
