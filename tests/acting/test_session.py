from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from helpers import FakeLearner
from scripted_env import SCRIPTED, reward

from gunreal.acting.episodes import play
from gunreal.acting.session import Session
from gunreal.config.schema import Config
from gunreal.envs.make import describe, make
from gunreal.learning.registry import interface
from gunreal.runtime.system import build_learner, on_this_machine
from gunreal.tasks.registry import load_tasks


class Remembering(FakeLearner):
    """A recurrent learner whose state, and value, is a running sum of what it has seen and done."""

    def predict(self, head, observations, past=None):
        (logits, _), seen = super().predict(head, observations), observations.sum((1,))[:, None]
        state = np.where(past.last_action < 0, 0, past.state) / 2 + seen + past.last_action + past.last_reward
        return logits, state[:, 0], state.astype(np.float32)


def session(script="----T", learner=None, state=0, **options):
    config = Config(env=SCRIPTED, env_args={"script": script})
    spec = describe(config)._replace(state=state)
    return Session(learner or FakeLearner(), config, spec, (), functools.partial(make, config), **options), config, spec


@pytest.mark.parametrize("sample", [True, False])
def test_it_plays_the_episodes_of_an_evaluation(sample):
    one, config, spec = session("----T --t ------T", sample=sample)
    played = sorted(play(FakeLearner(), config, spec, 4, seed=1, sample=sample))
    for episode in played:
        while not (view := one.view())["ended"]:
            one.step()
        assert (view["episode"], view["step"], view["score"]) == (episode.number, episode.length, episode.score)
        assert view["ended"] == ("truncated" if view["step"] == 3 else "terminated")
        one.step()  # begins the next one
    assert (one.view()["episode"], one.view()["step"]) == (4, 0)


@pytest.mark.parametrize("state", [0, 1])
def test_an_action_that_is_chosen_in_the_past_changes_what_follows(state):
    learner = Remembering() if state else FakeLearner()
    one, *_ = session(learner=learner, state=state)
    for action in (0, 1, 2, 0, 1):
        one.step(action)
    first = one.view()
    assert first["ended"] and first["action"] is None and len(first["curves"]["value"]) == 6
    for _ in range(3):
        one.back()
    view = one.view()
    assert (view["step"], view["newest"], view["action"], view["ended"]) == (2, 5, 2, "")
    assert view["frame"].tolist()[1:] == [2, 1] and view["score"] == reward(0, 0) + reward(1, 1)
    one.step()  # goes forward in what was played
    one.step(0)
    assert (one.view()["step"], one.view()["newest"]) == (4, 5)
    one.back()
    one.back()
    one.step(1)
    other, *_ = session(learner=learner, state=state)
    for action in (0, 1, 1):
        other.step(action)
    for _ in range(2):
        found, wanted = one.view(), other.view()
        assert found["frame"].tolist() == wanted["frame"].tolist() and found["curves"] == wanted["curves"]
        assert (found["newest"], found["score"], found["ended"]) == (wanted["newest"], wanted["score"], "")
        one.step(2)
        other.step(2)
    for _ in range(9):
        one.back()
    assert one.view()["step"] == 0


def test_it_shows_what_tasks_predict_and_how_wrong_they_were():
    tasks = load_tasks(("pc", "rp", "mh"), {})
    config = Config(env="gunreal/Catch-v0", runner="serial", agents=2, hidden=16)
    spec, _, config = interface(config)
    learner = build_learner(on_this_machine(config), spec, tasks)
    one = Session(learner, config, spec, tasks, functools.partial(make, config))
    expected, frames = [], []
    while not (view := one.view())["ended"]:
        odds = view["shown"]["rp"]["next reward"]
        assert sum(odds.values()) == pytest.approx(1) and view["policy"].sum() == pytest.approx(1)
        expected.append(odds)
        frames.append(view["frame"])
        one.step()
    assert one.actions == ("left", "stay", "right")
    kinds = ["zero"] * 8 + ["positive" if view["reward"] > 0 else "negative"]
    wanted = [-math.log(odds[kind]) for odds, kind in zip(expected, kinds, strict=True)][2:]
    losses = view["curves"]["rp"]
    assert losses[3:] == pytest.approx(wanted, abs=1e-4) and all(map(math.isnan, losses[:3]))
    assert not np.isnan(view["curves"]["pc"][1:]).any() and view["shown"]["mh"]["output"].shape == (4,)
    (q,) = learner.predict("pc", np.concatenate([*frames[-3:], view["frame"]])[None])
    np.testing.assert_allclose(view["shown"]["pc"]["largest Q"], q[0], atol=1e-4)

    weights = learner.get_state()
    weights = {name: array * 0 if "policy" in name else array for name, array in weights.items()}
    learner.set_weights({**weights, "version": weights["version"] + 1})
    assert one.view()["policy"].tolist() == pytest.approx([1 / 3] * 3)
