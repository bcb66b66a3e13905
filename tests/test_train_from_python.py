from __future__ import annotations

import dataclasses
import importlib
import json
import subprocess
import sys

import pytest
from trained import short_run

import gunreal
from gunreal.config.files import load
from gunreal.config.schema import Config


def test_train_is_the_function_before_and_after_its_module_is_imported():
    program = (
        "import gunreal, inspect, pydoc\n"
        "function, signature = gunreal.train, str(inspect.signature(gunreal.train))\n"
        "import gunreal.train, importlib\n"
        "import gunreal.train as same\n"
        "from gunreal.train import main\n"
        "module = importlib.import_module('gunreal.train')\n"
        "assert inspect.isfunction(function) and gunreal.train is function is same is module.train\n"
        "assert inspect.ismodule(module) and module.main is main\n"
        "assert str(inspect.signature(gunreal.train)) == signature and signature.startswith('(config: ')\n"
        "assert 'Trains until the budget is used up' in pydoc.render_doc(gunreal.train)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    after = "import gunreal.train, gunreal, inspect; assert inspect.isfunction(gunreal.train)"
    subprocess.run([sys.executable, "-c", after], check=True)


MINE = """
from gunreal import AuxiliaryTask
from gunreal.envs.catch import Catch
from gunreal.tasks.value_replay import ValueReplay


class Mine(ValueReplay):
    name = "mine"


def make(rows):
    return Catch(rows=rows)
"""


def test_an_environment_and_a_task_from_python(tmp_path, monkeypatch):
    """A parallel run takes both from a module. The saved names are enough to resume and to evaluate it."""
    (tmp_path / "of_mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = importlib.import_module("of_mine")
    config = gunreal.Config(
        env=mine.make, env_args={"rows": 5}, tasks=(mine.Mine,), task={"mine": {"weight": 0.5}}, agents=4, steps=200
    )
    run = gunreal.train(dataclasses.replace(config, name="mine", hidden=8, frame_size=36), show=False)
    assert run.config.env == "of_mine:make" and run.config.tasks == ("of_mine:Mine",)
    assert run.tasks[0].weight == 0.5 and run.metrics[-1]["episodes"] > 0
    run = gunreal.resume(run, steps=400, show=False, eval_steps=300, eval_episodes=1)  # in another process
    assert run.step >= 400 and [line["eval_length_mean"] for line in run.metrics if line.get("eval_step")] == [4]
    command = [sys.executable, "-m", "gunreal", "evaluate", "mine", "--episodes", "2", "--json"]
    played = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert played["lengths"] == [4, 4]  # steps of a fall through 5 rows


def test_a_new_weight_of_a_task_is_saved_and_trained_with(tmp_path):
    run = short_run(tmp_path, "weighted", steps=80, tasks=("vr",))
    run = gunreal.resume(run, steps=160, task={"vr": {"weight": 1e4}}, show=False)
    assert load(run.path / "config.toml")["task"] == {"vr": {"weight": 1e4}} and run.metrics[-1]["step"] >= 160
    last = next(line for line in reversed(run.metrics) if line["loss_vr"] is not None)
    assert last["loss_total"] > 1e3 * last["loss_vr"] > 0  # the task takes part in a third of PPO's updates


def test_a_callback_that_is_no_function_is_refused_before_the_run_starts(tmp_path):
    with pytest.raises(TypeError, match="on_metrics is 3, but must be a function"):
        gunreal.train(Config(env="CartPole-v1", logdir=str(tmp_path)), on_metrics=3)
    assert not list(tmp_path.iterdir())


def test_a_run_says_where_it_is_and_what_comes_next(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = {"env": "CartPole-v1", "runner": "serial", "agents": 2, "t_max": 5, "min_batch": 20, "hidden": 8}
    gunreal.train(Config(**small, name="as told", steps=100))
    first, *_, numbers, last = capsys.readouterr().out.splitlines()
    assert first == "training in runs/as told" and "100%" in numbers
    assert last == "finished; to play episodes, run: gunreal evaluate 'runs/as told'"
    gunreal.train(Config(**small, name="cut off", steps=10**6, metrics_seconds=0.1), on_metrics=lambda line: True)
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("stopped at step ") and last.endswith("; to continue, run: gunreal resume 'runs/cut off'")
