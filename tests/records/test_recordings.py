"""Recordings of episodes, and tasks that learn from them."""

from __future__ import annotations

import contextlib
import os
import shutil

import numpy as np
import pytest
from cloning import Cloning
from trained import catch_run

import gunreal
from gunreal.__main__ import main
from gunreal.acting.episodes import Episode, Transition
from gunreal.experience.replay import FIRST, RESET, TERMINATED
from gunreal.experience.sequences import uniform_sequences
from gunreal.experience.spec import Spec
from gunreal.records import recordings
from gunreal.train import main as start

minari = pytest.importorskip("minari")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of a recording of a run on Catch."""
    folder = tmp_path_factory.mktemp("recorded")
    data = folder / "demos"
    with contextlib.chdir(folder):
        assert main(["gunreal", "evaluate", str(catch_run(folder)), "--episodes", "5", "--record", data.name]) == 0
    return data


def test_a_data_set_has_what_was_played(recorded):
    """Minari reads it. Episodes of Catch have nine steps, and only the last one has a reward."""
    dataset = minari.MinariDataset(recorded / "data")
    assert dataset.total_episodes == 5 and dataset.total_steps == 45 and dataset.action_space.n == 3
    for episode in dataset.iterate_episodes():
        assert episode.observations.shape[0] == 10 and episode.observations.dtype == np.uint8
        assert episode.terminations.tolist() == [False] * 8 + [True] and not episode.truncations.any()
        assert set(episode.rewards[:-1]) == {0} and abs(episode.rewards[-1]) == 1


def test_it_is_read_as_a_replay(recorded):
    spec = gunreal.load(recorded.parent / "catch").spec
    replay = recordings.load(str(recorded), spec).replay(2)
    assert (replay.oldest, replay.end) == (0, 49)  # the last row only resets
    flags = replay.get("flags", 0, 20)
    assert flags.shape == (2, 20) and flags[0].tolist() == [FIRST, *[0] * 7, TERMINATED, RESET] * 2
    first = next(minari.MinariDataset(recorded / "data").iterate_episodes())
    assert (replay.get("frame", 0, 10)[1] == first.observations).all()
    assert (replay.get("action", 0, 9)[0] == first.actions).all()
    stacked = replay.observations(np.array([[0, 2], [10, 12]]))
    assert (stacked[0, 1] == np.concatenate([first.observations[place] for place in (0, 0, 1, 2)])).all()
    drawn = uniform_sequences(replay, np.array([[0.0] * 4, [0.9999] * 4], np.float32))
    assert drawn.first.tolist() == [0, 48] and drawn.length.tolist() == [20, 1]


def test_a_recording_that_is_replaced_is_read_again(recorded, tmp_path):
    path, spec = tmp_path / "copy", gunreal.load(recorded.parent / "catch").spec
    shutil.copytree(recorded, path)
    first = recordings.load(str(path), spec)
    assert recordings.load(str(path), spec) is first
    path.rename(tmp_path / "other")
    shutil.copytree(recorded, path)
    os.utime(path, (1, 1))
    second = recordings.load(str(path), spec)
    assert second is not first
    os.utime(path / "data" / "main_data.hdf5", (1, 1))
    assert recordings.load(str(path), spec) is not second


def test_a_recurrent_network_begins_a_sequence_without_a_memory(recorded):
    spec = gunreal.load(recorded.parent / "catch").spec._replace(state=2)
    found = recordings.load(str(recorded), spec)
    past, read = found.past(np.array([[7, 8, 9, 10, 11]])), found.read(1)
    assert past.state.tolist() == [[0, 0]]
    action = read("action", np.array([[7, 8, 10]]))[0].tolist()
    assert past.last_action.tolist() == [[-1, *action[:2], -1, action[2]]]
    assert past.last_reward.tolist() == [[0, 0, read("reward", np.array([[8]]))[0, 0], 0, 0]]


@pytest.fixture(scope="module")
def ones(tmp_path_factory):
    """The folder of a recording of CartPole, whose expert always chooses action 1."""
    path, rng = tmp_path_factory.mktemp("ones") / "ones", np.random.default_rng(0)
    with recordings.Writer(path, Spec((4,), 1, "float32", 2), "CartPole-v1") as writer:
        for number in range(3):
            for step in range(12):
                frame = rng.standard_normal(4).astype(np.float32)
                writer.step(Transition(number, 1 if step else -1, frame, 1.0 if step else 0.0, step == 11, False))
            writer.end(Episode(number, 7, 11.0, 11, False))
    return path


def test_behavior_is_cloned_beside_the_reward(tmp_path, ones, monkeypatch):
    """The actions of the recording become the most probable ones, and the run repeats exactly.

    Each batch, here of half of the agents, has sequences of its own.
    """
    drawn, sample = [], Cloning.sample
    monkeypatch.setattr(
        Cloning, "sample", lambda task, replay, draws: drawn.append(draws) or sample(task, replay, draws)
    )

    def train(name):
        config = gunreal.Config(
            env="CartPole-v1", runner="serial", steps=600, agents=4, min_batch=40,
            hidden=16, learning_rate=1e-2, tasks=(Cloning,), task={"bc": {"data": str(ones)}}, metrics_seconds=0.1,
            logdir=str(tmp_path), name=name,
        )  # fmt: skip
        return gunreal.train(config, show=False).metrics

    lines = train("one")
    assert len({draws.tobytes() for draws in drawn}) == len(drawn) > 10
    assert [line["bc_right"] for line in lines if line.get("bc_right") is not None][-1] > 0.9
    assert train("two")[-1]["weights_sha256"] == lines[-1]["weights_sha256"]


def test_mistakes_are_named_before_the_start(tmp_path, recorded, capsys):
    def refused(*flags, env="gunreal/Catch-v0"):
        words = ["--env", env, "--tasks", "cloning:Cloning", "--logdir", str(tmp_path / "runs"), *flags]
        assert start(["train", *words]) == 2
        return capsys.readouterr().err

    data = f"bc.data={recorded}"
    assert "the recording nowhere cannot be used" in refused("--task", "bc.data=nowhere")
    assert "its observations are uint8 [1, 84, 84] instead of float32 [4]" in refused("--task", data, env="CartPole-v1")
    assert not (tmp_path / "runs").exists()
    words = [str(recorded.parent / "catch"), "--record", str(recorded)]
    assert main(["gunreal", "evaluate", *words]) == 2 and "exists already" in capsys.readouterr().err
