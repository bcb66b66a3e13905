from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from rings import episodes, make_segment
from trained import Tens

from gunreal.acting.episodes import play
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.make import describe

TENS = Config(env="trained:Tens-v0")


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Environments are opened in this process, where a test can see them."""
    for module in ("make", "apart"):
        monkeypatch.setattr(f"gunreal.envs.{module}.is_foreign", lambda config: False)


CATCH = Config(env="gunreal/Catch-v0", frame_stack=3)


class Fixed:
    """A learner with the same logits everywhere; keeps what it is asked."""

    version = 0

    def __init__(self, *logits: float):
        self.logits, self.asked = np.array(logits, np.float32), []

    def predict(self, head, observations, past=None):
        assert head == "base"
        self.asked.append(observations)
        return np.tile(self.logits, (len(observations), 1)), np.zeros(len(observations), np.float32)

    def train(self, batch, learning_rate, entropy, progress):
        raise NotImplementedError


def tens(count, logits=(0, 0, 0), **options):
    return sorted(play(Fixed(*logits), TENS, describe(TENS), count, **options))


def test_every_episode_is_played_and_scores_are_raw():
    learner, steps = Fixed(0, 9, 0), []
    played = list(play(learner, TENS, describe(TENS), 40, sample=False, on_step=lambda: steps.append(1)))
    assert played != sorted(played) and sorted(episode.number for episode in played) == list(range(40))
    assert [episode.length for episode in played] == [1 + episode.seed % 7 for episode in played]
    assert [episode.score for episode in played] == [11.0 * episode.length for episode in played]
    assert not any(episode.cut for episode in played)
    taken = sum(episode.length for episode in played)
    assert sum(map(len, learner.asked)) == len(steps) == taken  # nothing is predicted for idle environments


def test_environments_have_their_share_whatever_the_length(monkeypatch):
    """The first 20 episodes that end would be short ones; which are played must not depend on it."""
    monkeypatch.setattr("gunreal.acting.episodes._ENVIRONMENTS", 3)
    three = tens(20)
    monkeypatch.setattr("gunreal.acting.episodes._ENVIRONMENTS", 1)
    assert tens(20) == three
    assert tens(5) == three[:5]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 16),
        ({"agents_per_process": 3}, 16),
        ({"agents_per_process": 1}, 1),
        ({"agents": 1}, 1),  # of a run that has opened no other one either
    ],
)
def test_an_environment_may_be_the_only_one_of_its_process(options, count):
    Tens.still_open = 0
    config = dataclasses.replace(TENS, **options)
    playing = play(Fixed(0, 0, 0), config, describe(config), 40)
    played = [next(playing)]
    assert Tens.still_open == count
    assert sorted([*played, *playing]) == tens(40)


def test_seeds():
    Tens.seeds.clear()
    played = tens(50, seed=1)
    seeds = [episode.seed for episode in played]
    assert len(set(seeds)) == 50 and sorted(Tens.seeds) == sorted(seeds)
    assert tens(50, seed=1) == played
    assert not {episode.seed for episode in tens(50, seed=2)} & set(seeds)
    streams = ([1, agent, episode] for agent in range(64) for episode in range(1, 64))  # `Worker._episode_seed`
    assert not {int(np.random.default_rng(stream).integers(2**31)) for stream in streams} & set(seeds)


def test_actions_are_drawn_from_the_policy():
    def mean_action(**options):
        played = tens(300, logits=(np.log(0.5), np.log(0.1), np.log(0.4)), **options)
        return sum(episode.score for episode in played) / sum(episode.length for episode in played) - 10

    assert mean_action(sample=True) == pytest.approx(0.9, abs=0.1)
    assert mean_action(sample=False) == 0


def test_episodes_are_cut_at_max_steps():
    for episode in tens(30, logits=(9, 0, 0), sample=False, max_steps=4):
        length = 1 + episode.seed % 7
        assert (episode.length, episode.cut) == (min(length, 4), length > 4)
        assert episode.score == 10 * episode.length


@pytest.mark.parametrize("count", [0, -1])
def test_no_episodes_are_refused_at_once(count):
    with pytest.raises(ValueError, match=f"^cannot play {count} episodes; play at least 1$"):
        play(Fixed(0, 0, 0), TENS, describe(TENS), count)


def test_environments_are_closed_if_the_consumer_stops():
    Tens.still_open = 0
    tens(4)
    given_up = play(Fixed(0, 0, 0), TENS, describe(TENS), 20)
    next(given_up)
    assert Tens.still_open > 0
    given_up.close()
    assert Tens.still_open == 0


@pytest.mark.parametrize("change", [{"num_actions": 4}, {"frame": (1, 80, 80)}])
def test_an_environment_that_has_changed_since_the_training_is_refused(change):
    trained = describe(CATCH)._replace(**change)
    with pytest.raises(ConfigError, match=r"gunreal/Catch-v0 has (num_actions 3|frame \(1, 84, 84\)) instead of"):
        next(play(Fixed(0, 0, 0), CATCH, trained, 1))


def test_observations_are_stacked_as_in_the_ring():
    spec, seen, scores = describe(CATCH), [], []

    def watch(observation, score, past):
        seen.append(observation)
        scores.append(score)

    learner = Fixed(1, 0, 0)
    first = min(play(learner, CATCH, spec, 2, watch=watch))
    assert len(seen) == 1 + first.length == 10 and scores == [0.0] * 9 + [first.score]
    np.testing.assert_array_equal([batch[0] for batch in learner.asked], seen[:-1])
    frames = np.stack([observation[-1:] for observation in seen])
    replay = make_segment(spec, episodes("--------T")[:-1], frames=frames).replay(np.zeros(1, int))
    # The ring's newest row would be an episode's final observation: the same stack.
    np.testing.assert_array_equal(replay.observations(np.arange(10)[None])[0], seen)
