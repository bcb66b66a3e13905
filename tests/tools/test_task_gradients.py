import dataclasses

import pytest
import task_gradients

import gunreal
from gunreal.config.derived import rates
from gunreal.config.files import save
from gunreal.learning.learner import Learner


def test_a_run_is_taken_apart_and_stays_as_it_is(tmp_path, capsys, monkeypatch):
    """A task without a weight has no gradient. One that is given as a class appears with its name.

    Nothing is sent to Weights & Biases, and no evaluation starts. Rates stay as they are at the end of the run.
    """
    cls = "gunreal.tasks.reward_prediction:RewardPrediction"
    run = gunreal.train(
        gunreal.Config(
            env="gunreal/Catch-v0", tasks=("vr", cls), task={"rp": {"weight": 0.0}}, steps=600, agents=4, hidden=16,
            objective="a3c", min_batch=40, replay_size=100, logdir=str(tmp_path), name="run",
        ),
        show=False,
    )  # fmt: skip
    save(dataclasses.replace(run.config, track="wandb", eval_steps=10, eval_minutes=0.001), run.path / "config.toml")
    for name in ("records.tracker.Tracker", "runtime.training.Evaluation"):
        monkeypatch.setattr(f"gunreal.{name}", lambda *_: pytest.fail("a measurement has side effects"))
    train, used = Learner.train, set()
    monkeypatch.setattr(Learner, "train", lambda self, batch, *now: used.add(now) or train(self, batch, *now))
    before = sorted(path.name for path in run.path.rglob("*"))
    assert task_gradients.main([str(run.path), "--updates", "3"]) == 0
    rows = {cells[1]: list(map(float, cells[2:5])) for line in capsys.readouterr().out.splitlines()[2:]
            if (cells := [cell.strip() for cell in line.split("|")])}  # fmt: skip
    assert list(rows) == ["base", "vr", "rp"]
    assert rows["base"][0] > 0 and rows["base"][1:] == [1, 1]
    assert rows["vr"][0] > 0 and rows["rp"][0] == 0
    assert sorted(path.name for path in run.path.rglob("*")) == before
    assert used == {rates(run.config, run.step)}
