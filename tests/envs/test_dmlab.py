"""DeepMind Lab, on the stand-in; with `pytest -m dmlab`, the same tests on the real module where that is installed."""

from __future__ import annotations

from pathlib import Path

import dmlab_fixtures
import dmlab_standin
import numpy as np
import pytest
from dmlab_fixtures import ARENA, COMPILED, MAZE, SHORT, both, spied
from training import Training

from gunreal.config.schema import Config
from gunreal.envs.dmlab_levels import ACTION_SETS
from gunreal.envs.make import describe, make, restore

lab, opened = dmlab_fixtures.lab, dmlab_fixtures.opened  # pytest finds fixtures among a module's names


def play(env, seed, actions):
    observation, _ = env.reset(seed=seed)
    columns = zip((observation, 0.0, False, False), *(env.step(action)[:4] for action in actions), strict=True)
    return list(map(np.array, columns))


def random_actions(count, seed=0):
    return np.random.default_rng(seed).integers(6, size=count)


@both
@pytest.mark.parametrize("level", [MAZE, ARENA, "contributed/dmlab30/rooms_watermaze"])
def test_any_level_by_name(lab, level):
    spec = describe(Config(env=f"dmlab/{level}"))
    assert (spec.frame, spec.stack, spec.dtype, spec.num_actions) == ((1, 84, 84), 4, "uint8", 6)
    assert describe(Config(env=f"dmlab/{level}", observation="rgb", frame_stack=1)).observation == (3, 84, 84)


@both
@pytest.mark.parametrize(("options", "steps"), [({}, 30), ({"action_repeat": 8}, 15), ({"action_repeat": 7}, 18)])
@pytest.mark.parametrize("fps", [{}, {"fps": "30"}])
def test_the_clock_truncates_and_the_last_frame_is_kept(opened, options, steps, fps):
    env = opened(settings=SHORT | fps, **options)
    steps = -(-steps // 2) if fps else steps
    frames, _, terminated, truncated = play(env, 5, random_actions(steps))
    assert truncated.tolist() == [False] * steps + [True] and not terminated.any()
    np.testing.assert_array_equal(frames[-1], frames[-2])
    again, reward, *end, _ = env.step(0)  # a replay that drifted may come here
    assert (reward, end) == (0.0, [False, True])
    np.testing.assert_array_equal(again, frames[-1])
    assert not play(env, 6, [0])[3].any()  # the next episode goes on


@pytest.mark.parametrize(("level", "terminates"), [("standin/deadly", True), ("standin/no_clock", False)])
def test_an_end_before_the_clocks_terminates(opened, level, terminates):
    env = opened(level, actions={"wait": [0] * 7, "jump": [0, 0, 0, 0, 0, 1, 0]})
    frames, _, terminated, truncated = play(env, 1, [0, 0, 1])
    assert terminated.tolist() == [False, False, False, terminates]
    assert truncated.tolist() == [False, False, False, not terminates]
    np.testing.assert_array_equal(frames[-1], frames[-2])
    assert env.step(0)[2:4] == (terminates, not terminates)


@both
def test_the_six_actions_do_what_they_are_called(opened):
    names = ["VEL.TRANS", "DEBUG.POS.ROT"]
    env = opened(ARENA, observations=names, actions={**ACTION_SETS["nav6"], "wait": [0] * 7})
    assert " ".join(ACTION_SETS["nav6"]) == "forward backward strafe_left strafe_right look_left look_right"

    def hold(action):
        env.reset(seed=1)
        for _ in range(45):  # until it has landed
            before = env.step(6)[0]
        for _ in range(5):
            after = env.step(action)[0]
        turn = (after["DEBUG.POS.ROT"][1] - before["DEBUG.POS.ROT"][1] + 180) % 360 - 180
        return (*after["VEL.TRANS"][:2], turn)

    for action, axis, sign in ((0, 0, 1), (1, 0, -1), (2, 1, 1), (3, 1, -1)):  # x is ahead, y is left
        velocity = hold(action)
        assert sign * velocity[axis] > 10 * abs(velocity[1 - axis]) and abs(velocity[2]) < 1
    for action, sign in ((4, 1), (5, -1)):
        x, y, turn = hold(action)
        assert turn == pytest.approx(sign * 5 * 8.45, rel=0.1) and abs(x) + abs(y) < 1


@both
def test_the_reward_of_a_step_is_that_of_all_its_frames(opened):
    """As a frame has when it is played alone, both in new instances."""
    steps = np.array([play(opened(ARENA), seed, [0] * 60)[1][1:] for seed in range(8)])
    frames = np.array([play(opened(ARENA, action_repeat=1), seed, [0] * 240)[1][1:] for seed in range(8)])
    assert steps.any() and (steps == frames.reshape(8, 60, 4).sum(2)).all()


@both
def test_further_observations(lab):
    args = {"depth": True, "observations": ["DEBUG.POS.TRANS", "VEL.TRANS"], "width": 48, "height": 32}
    env = make(Config(env=f"dmlab/{MAZE}", env_args=args, frame_size=32), 2, ("depth", "DEBUG.POS.TRANS"))
    step = env.step(np.zeros(2, np.int32), np.ones(2, bool), np.array([1, 2]))
    assert step.frame.shape == (2, 1, 32, 32) and step.frame.dtype == np.uint8
    assert step.extra["depth"].shape == (2, 32, 48) and step.extra["depth"].dtype == np.uint8
    assert step.extra["DEBUG.POS.TRANS"].shape == (2, 3) and step.extra["DEBUG.POS.TRANS"].dtype == np.float64
    assert len(np.unique(step.extra["depth"])) > 1
    env.close()


@both
def test_observations_are_of_their_space(opened):
    plain = opened()
    everything = opened(depth=True, observations=["VEL.TRANS", "RGBD", "FRAMES_REMAINING_AT_60"])
    for env in (plain, everything):
        for observation in (env.reset(seed=3)[0], env.step(1)[0]):
            assert env.observation_space.contains(observation)
    assert set(env.observation_space) == {"image", "depth", "VEL.TRANS", "RGBD", "FRAMES_REMAINING_AT_60"}
    np.testing.assert_array_equal(observation["image"], observation["RGBD"][:3].transpose(1, 2, 0))
    np.testing.assert_array_equal(observation["depth"], observation["RGBD"][3])
    assert plain.reset(seed=3)[0].shape == (24, 32, 3)


@both
def test_lab_gets_the_size_of_a_frame_or_what_is_asked_for(lab, monkeypatch):
    calls = spied(monkeypatch, lab)
    args = {"width": 160, "height": 120, "renderer": "hardware", "settings": {"minimalUI": "false", "fps": "30"}}
    for given in ({}, args | {"depth": True, "level_cache": "somewhere"}):
        assert describe(Config(env=f"dmlab/{MAZE}", env_args=given, frame_size=42)).frame == (1, 42, 42)
    (_, observations, settings), (_, (image, *_), asked) = (call["args"] for call in calls)
    offline = {"appendCommand": "+set net_enabled 0"}
    assert settings == {"width": "44", "height": "44", "minimalUI": "true"} | offline  # the next multiple of 4
    assert asked == {"width": "160", "height": "120", "minimalUI": "false", "fps": "30"} | offline
    assert observations == ["RGB_INTERLEAVED", "FRAMES_REMAINING_AT_60"] and image == "RGBD_INTERLEAVED"
    assert [call["renderer"] for call in calls] == ["software", "hardware"]
    assert calls[1]["level_cache"].folder == Path("somewhere")


@both
def test_one_instance_for_life_or_a_new_one_to_be_exact(opened, lab, monkeypatch):
    calls, actions = spied(monkeypatch, lab), random_actions(30)
    env = opened(settings=SHORT)
    episodes = [play(env, seed, actions) for seed in (1, 2, 1)]
    assert len(calls) == 1 and (episodes[0][0] != episodes[1][0]).any()
    if lab is dmlab_standin:
        assert (episodes[0][0] != episodes[2][0]).any()  # which is why there is `exact`
    exact = opened(settings=SHORT, exact=True)
    for episode in [play(exact, seed, actions) for seed in (1, 2, 1)][::2]:
        for one, two in zip(episodes[0], episode, strict=True):
            np.testing.assert_array_equal(one, two)
    assert len(calls) == 1 + 3


@both
def test_any_integer_is_a_seed(opened):
    env = opened()
    for seed in (0, 2**31 - 1, 2**31, 2**63 - 1, None, None):
        env.reset(seed=seed)


@both
def test_exact_episodes_are_restored(lab):
    """The contract of `make.restore`, with episodes of different lengths."""
    config = Config(env=f"dmlab/{ARENA}", env_args={"exact": True, "settings": SHORT}, frame_size=24)
    seeds, lengths = [11, 12, 13], [7, 0, 12]
    actions = [random_actions(length, seed=length).astype(np.int32) for length in lengths]
    restored = make(config, 3)
    last = restore(restored, seeds, actions)
    for i, (seed, taken) in enumerate(zip(seeds, actions, strict=True)):
        original = make(config, 1)
        restore(original, [99], [random_actions(40)[:20]])  # it has played before
        frames = restore(original, [seed], [taken]).frame
        np.testing.assert_array_equal(last.frame[i], frames[0])
        original.close()
    restored.close()


@both
def test_training(lab, tmp_path, monkeypatch):
    """The server and the agents' processes import the module by themselves. A useless cache is one line."""
    if lab is dmlab_standin:
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "deepmind_lab.py").write_text("from dmlab_standin import *\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    config, level = tmp_path / "short.toml", COMPILED if lab is dmlab_standin else ARENA
    args = f'settings = {{ episodeLengthSeconds = "2" }}\nlevel_cache = "{config}/maps"\n'
    config.write_text(f'env = "dmlab/{level}"\n[env_args]\n{args}')
    options = ("--tasks", "pc,vr,rp", "--agents", 4, "--steps", 320, "--hidden", 32, "--replay_size", 100)
    options += ("--min_batch", 80, "--agents_per_process", 2)
    with Training(tmp_path, "--config", config, *options) as run:
        assert run.end() == 0, run.stderr
        lines = run.lines()
        assert run.stderr.count("cannot cache maps in") == (lab is dmlab_standin)
    last = lines[-1]
    assert last["stopped_by"] == "steps" and last["step"] >= 320
    assert last["updates"] > 0 and last["episodes"] >= 4 and last["skipped"] == 0
    for name in ("base", "pc", "vr"):
        losses = [line[f"loss_{name}"] for line in lines if line[f"loss_{name}"] is not None]
        assert losses and np.isfinite(losses).all()
