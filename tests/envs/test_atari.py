from __future__ import annotations

import itertools
from unittest.mock import Mock

import numpy as np
import pytest

from gunreal.config.schema import Config, ConfigError
from gunreal.envs import atari
from gunreal.envs.atari_functional import AtariFunctional
from gunreal.envs.make import describe, make, make_raw


def step(env, action, reset=False, seed=0):
    n = env.num_envs
    return env.step(np.full(n, action, np.int32), np.full(n, reset), np.full(n, seed))


@pytest.mark.parametrize("observation", ["gray", "rgb"])
@pytest.mark.parametrize(("env", "game"), [("ALE/Pong-v5", "pong"), ("ALE/SpaceInvaders-v5", "space_invaders")])
def test_frames_and_rewards_are_those_of_ale_py(env, game, observation, monkeypatch):
    """As `AtariVectorEnv` does, whose no-op starts are its own: both without any but the first."""
    from ale_py.vector_env import AtariVectorEnv

    monkeypatch.setitem(atari.PROTOCOLS, "deterministic", (1, 0.0))
    gray = observation == "gray"
    theirs = AtariVectorEnv(
        game, 1, num_threads=1, stack_num=1, grayscale=gray, noop_max=2, reward_clipping=False, use_fire_reset=False
    )

    def as_frame(observation):
        return observation if gray else observation[:, 0].transpose(0, 3, 1, 2)

    ours = make(Config(env=env, observation=observation), 1)
    first = step(ours, 0, reset=True)
    seed = 0
    while theirs.reset(seed=seed)[1]["episode_frame_number"][0] != 1:  # as many no-ops as ours
        seed += 1
    pixels = [first.frame.astype(int) - as_frame(theirs.reset(seed=seed)[0])]
    rewards = []
    for action in np.random.default_rng(0).integers(ours.num_actions, size=250):
        theirs_now, reward, terminated, truncated, _ = theirs.step(np.array([action]))
        result = step(ours, action)
        if result.terminated[0]:
            assert terminated[0]
            break  # its last frame is one step old
        pixels.append(result.frame.astype(int) - as_frame(theirs_now))
        assert (result.reward[0], result.truncated[0]) == (reward[0], truncated[0])
        rewards.append(result.reward[0])
    assert np.any(rewards)
    assert np.abs(pixels).max() <= 1 and np.mean(np.array(pixels) != 0) < 1e-3  # means that end in .5
    ours.close(), theirs.close()


def test_episode_end():
    """Breakout ends when five balls are lost; the end is reported again until the caller resets."""
    env = make(Config(env="ALE/Breakout-v5"), 1, ("lives", "ram"))
    assert step(env, 0, reset=True, seed=3).extra["lives"].tolist() == [5]
    for t in range(2000):
        result = step(env, (1, 3)[t % 2])  # serve, and run to the right
        if result.terminated[0]:
            break
    assert result.terminated[0] and not result.truncated[0]
    assert result.extra["lives"].tolist() == [0] and result.extra["ram"].shape == (1, 128)
    assert step(env, 1).terminated[0]
    result = step(env, 0, reset=True, seed=3)
    assert not result.terminated[0] and result.extra["lives"].tolist() == [5]
    env.close()


@pytest.mark.parametrize("emulator", ["own", "ale"])
@pytest.mark.parametrize("counts", [True, False])
def test_a_life_that_is_lost_ends_the_return_only(emulator, counts):
    """The last of the five ends the episode."""
    config = Config(env="ALE/Breakout-v5", emulator=emulator, env_args={"terminal_on_life_loss": counts})
    env = make(config, 1, ("lives",))
    for seed in (3, 4):
        results = [step(env, 0, reset=True, seed=seed)]
        while not results[-1].terminated[0]:
            results.append(step(env, (1, 3)[len(results) % 2]))
        lives = [int(result.extra["lives"][0]) for result in results]
        fewer = [False, *(now < before for before, now in itertools.pairwise(lives))]
        assert lives[0] == 5 and sum(fewer) == 5
        lost = [bool(result.life_lost[0]) for result in results]
        assert lost == ([*fewer[:-1], False] if counts else [False] * len(results))
    env.close()


def test_device_runs_refuse_to_count_lives():
    config = Config(env="ALE/Breakout-v5", runner="device", env_args={"terminal_on_life_loss": True})
    with pytest.raises(ConfigError, match="terminal_on_life_loss does not work with --runner device; leave it out"):
        AtariFunctional(config, 1)


@pytest.mark.parametrize("emulator", ["own", "ale"])
def test_the_time_limit_counts_the_frames_that_choose_the_mode(emulator):
    """ALE counts 134 frames before this game begins."""
    limit = {"max_num_frames_per_episode": 134 + 40, "noop_max": 1}
    env = make(Config(env="ALE/NameThisGame-v5", emulator=emulator, env_args=limit), 1)
    step(env, 0, True)
    assert [bool(step(env, 0).truncated[0]) for _ in range(10)] == [False] * 9 + [True]


def test_protocols():
    def episode(protocol, seed):
        env = make(Config(env="ALE/Breakout-v5", protocol=protocol), 1)
        frames = [step(env, 0, reset=True, seed=seed).frame] + [step(env, 1 + t % 3).frame for t in range(40)]
        env.close()
        return np.concatenate(frames)

    one, two = episode("v5", 1), episode("v5", 2)
    np.testing.assert_array_equal(one[0], two[0])  # no no-ops,
    assert (one != two).any()  # but sticky actions
    env = make(Config(env="ALE/Pong-v5"), 1, ("ram",))
    starts = [step(env, 0, reset=True, seed=seed).extra["ram"][0] for seed in range(40)]
    assert 15 <= len(np.unique(starts, axis=0)) <= 30  # 1 to 30 no-ops
    env.close()


def test_sticky_actions_repeat_what_the_frame_before_played():
    """Each frame does so with probability 1/4, also a step's first one. An episode begins with no-ops."""
    ale = Mock(**{"getScreenGrayscale.return_value": np.zeros((2, 3), np.uint8)})
    ale.getMinimalActionSet.return_value = [3, 5]
    options = {"full_action_space": False, "frameskip": 4, "repeat_action_probability": 0.25, "noop_max": 1}
    console, screens = atari._Console(ale, options, 1), np.zeros((2, 2, 3), np.uint8)
    console.reset(0, screens[0])
    chosen = np.arange(2000) % 2
    for action in chosen:
        console.step(action, screens)
    played = np.array([call.args[0] for call in ale.play.call_args_list])
    repeats = (played != np.array([3, 5])[chosen, None]).mean(axis=0)
    assert repeats == pytest.approx([1 / 4, 1 / 16, 1 / 64, 1 / 256], abs=0.02)
    console.reset(1, screens[0])
    console._sticky = 1.0
    console.step(1, screens)
    assert ale.play.call_args.args[0] == [0, 0, 0, 0]


def test_the_screens_of_a_game_belong_to_the_caller():
    env = make_raw(Config(env="ALE/Breakout-v5"))
    first, _ = env.reset(seed=3)
    screens = [first, *(env.step(1 + t % 3)[0] for t in range(10))]
    assert len({screen.tobytes() for screen in screens}) > 5
    env.close()


@pytest.mark.parametrize("emulator", ["own", "ale"])
def test_without_no_ops_an_episode_starts_with_the_one_that_is_needed(emulator):
    """Of both emulators and of device runs."""
    first = []
    for noop_max in (0, 1):
        env = make(Config(env="ALE/Qbert-v5", emulator=emulator, env_args={"noop_max": noop_max}), 1)
        for seed in (1, 2):
            first += [step(env, 0, reset=True, seed=seed).frame, step(env, 2).frame]
        env.close()
    assert all((frame == first[k % 2]).all() for k, frame in enumerate(first))
    assert atari.game_options(Config(env="ALE/Qbert-v5", env_args={"noop_max": 0}))[1]["noop_max"] == 1


def test_action_sets_and_size():
    assert describe(Config(env="ALE/Breakout-v5")).num_actions == 4
    assert describe(Config(env="ALE/Breakout-v5", env_args={"full_action_space": True})).num_actions == 18
    assert describe(Config(env="ALE/Breakout-v5", frame_size=42)).frame == (1, 42, 42)
    assert describe(Config(env="ALE/Breakout-v5", frame_size=64, observation="rgb")).frame == (3, 64, 64)
