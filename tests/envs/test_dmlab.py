"""DeepMind Lab, on the stand-in; with `pytest -m dmlab`, the same tests on the real module where that is installed."""

from __future__ import annotations

from pathlib import Path

import dmlab_fixtures
import dmlab_standin
import numpy as np
import pytest
from dmlab_fixtures import ARENA, COMPILED, MAZE, SHORT, both, spied
from training import Training

from gunreal.config.checks import check
from gunreal.config.files import load
from gunreal.config.schema import Config
from gunreal.envs.dmlab import DMLab
from gunreal.envs.dmlab_levels import ACTION_SETS, Options
from gunreal.envs.make import describe, make, restore

lab, opened = dmlab_fixtures.lab, dmlab_fixtures.opened  # pytest finds fixtures among a module's names
CONFIGS = Path(__file__).parents[2] / "configs"


def play(env, seed, actions):
    observation, _ = env.reset(seed=seed)
    columns = zip((observation, 0.0, False, False), *(env.step(action)[:4] for action in actions), strict=True)
    return list(map(np.array, columns))


def random_actions(count, seed=0):
    return np.random.default_rng(seed).integers(6, size=count)


# What the environment relies on: true of the stand-in and of the real module.


@both
@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (TypeError, (MAZE, None)),
        (TypeError, (MAZE, ("RGB_INTERLEAVED",))),
        (TypeError, (MAZE, [], ["width"])),
        (TypeError, (MAZE, [], {"width": 84})),
        (TypeError, (MAZE, [], {1: "84"})),
        (RuntimeError, (MAZE, [], {"width": "82"})),
        (RuntimeError, (MAZE, [], {"height": "0"})),
        (RuntimeError, (MAZE, [], {"noSuchSetting": "1"})),
        (RuntimeError, ("no_such_level", [])),
        (RuntimeError, (MAZE, [], {}, "a brush")),
        (ValueError, (MAZE, ["NO_SUCH_OBSERVATION"])),
    ],
)
def test_the_module_refuses(lab, error, arguments):
    with pytest.raises(error):
        lab.Lab(*arguments)


@both
def test_the_module_rejects_bad_input(lab):
    instance = lab.Lab(MAZE, ["RGB_INTERLEAVED", "FRAMES_REMAINING_AT_60"], {"width": "32", "height": "24", **SHORT})
    wait = np.zeros(7, np.intc)
    assert not instance.is_running()
    for too_early in (instance.observations, lambda: instance.step(wait)):
        with pytest.raises(RuntimeError, match="wrong status"):
            too_early()
    for seed in (np.int64(3), np.int32(3), "3", 3.0):
        with pytest.raises(ValueError, match="'seed' must be int or None"):
            instance.reset(seed=seed)
    instance.reset(episode=0, seed=3)
    for action, error in (([0] * 7, TypeError), (wait[:6], ValueError), (wait.astype(np.int64), ValueError)):
        with pytest.raises(error):
            instance.step(action)
    for left in range(120, 0, -4):
        assert instance.is_running() and instance.observations()["FRAMES_REMAINING_AT_60"] == pytest.approx(left)
        assert isinstance(instance.step(wait, num_steps=4), float)
    assert not instance.is_running()
    for too_late in (instance.observations, lambda: instance.step(wait)):
        with pytest.raises(RuntimeError, match="wrong status"):
            too_late()
    assert instance.close() and not instance.close()
    with pytest.raises(RuntimeError):
        instance.step(wait)


# The environment.


@both
@pytest.mark.parametrize("level", [MAZE, ARENA, "contributed/dmlab30/rooms_watermaze"])
def test_any_level_by_name(lab, level):
    spec = describe(Config(env=f"dmlab/{level}"))
    assert (spec.frame, spec.stack, spec.dtype, spec.num_actions) == ((1, 84, 84), 4, "uint8", 6)
    assert describe(Config(env=f"dmlab/{level}", observation="rgb", frame_stack=1)).observation == (3, 84, 84)


@both
def test_the_papers_levels_last_900_and_300_agent_steps(opened):
    for level, length in ((MAZE, 900), (ARENA, 300)):
        env = opened(level)
        *_, terminated, truncated = play(env, 5, random_actions(length))
        assert not terminated.any() and truncated.tolist() == [False] * length + [True]


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
def test_the_reward_counts_all_collected_items(opened):
    env = opened(ARENA)
    rewards = np.concatenate([play(env, seed, [0] * 60)[1] for seed in range(8)])
    assert rewards.any() and set(rewards) <= set(range(-5, 6))


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
@pytest.mark.parametrize("options", [{}, {"depth": True}])
def test_rendering(lab, options):
    env = DMLab(MAZE, Options(width=32, height=24, **options), render_mode="rgb_array")
    assert env.render() is None  # there is nothing to see yet
    observation, _ = env.reset(seed=1)
    np.testing.assert_array_equal(env.render(), observation["image"] if options else observation)
    env.render_mode = None
    assert env.render() is None
    env.close()


@both
def test_it_renders_at_the_size_of_a_frame(lab, monkeypatch):
    calls = spied(monkeypatch, lab)
    assert describe(Config(env=f"dmlab/{MAZE}", frame_size=42)).frame == (1, 42, 42)
    _, observations, settings = calls[-1]["args"]
    offline = {"appendCommand": "+set net_enabled 0"}
    assert settings == {"width": "44", "height": "44", "minimalUI": "true"} | offline  # the next multiple of 4
    assert observations == ["RGB_INTERLEAVED", "FRAMES_REMAINING_AT_60"] and calls[-1]["renderer"] == "software"


def test_settings_reach_lab(lab, monkeypatch):
    calls = spied(monkeypatch, lab)
    args = {"width": 160, "height": 120, "renderer": "hardware", "settings": {"minimalUI": "false", "fps": "30"}}
    describe(Config(env=f"dmlab/{MAZE}", env_args=args | {"depth": True, "level_cache": "somewhere"}))
    (call,) = calls
    asked = {"width": "160", "height": "120", "minimalUI": "false", "fps": "30"}
    assert call["args"][2] == asked | {"appendCommand": "+set net_enabled 0"}
    assert call["args"][1][0] == "RGBD_INTERLEAVED" and call["renderer"] == "hardware"
    assert call["level_cache"].folder == Path("somewhere")


@both
def test_a_new_instance_repeats_an_episode(opened):
    actions = random_actions(40)
    first, second, other = (play(opened(), seed, actions) for seed in (7, 7, 8))
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, two)
    assert (first[0] != other[0]).any()


@both
def test_one_instance_for_life_or_a_new_one_to_be_exact(opened, lab, monkeypatch):
    calls, actions = spied(monkeypatch, lab), random_actions(30)
    env = opened(settings=SHORT)
    episodes = [play(env, seed, actions) for seed in (1, 2, 1)]
    assert len(calls) == 1
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


# Whole runs.


@both
@pytest.mark.parametrize("level", [MAZE, ARENA])
def test_the_papers_configurations(lab, level):
    config = Config(**load(CONFIGS / f"dmlab_{level}.toml"))
    check(config)
    assert config.env == f"dmlab/{level}" and config.tasks == ("pc", "vr", "rp")
    assert describe(config).observation == (4, 84, 84)


@both
@pytest.mark.parametrize("flags", [("--runner", "serial"), ("--agents_per_process", 2)], ids=["serial", "parallel"])
def test_training(lab, tmp_path, monkeypatch, flags):
    """The server and the agents' processes import the module by themselves. A useless cache is one line."""
    if lab is dmlab_standin:
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "deepmind_lab.py").write_text("from dmlab_standin import *\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    config, level = tmp_path / "short.toml", COMPILED if lab is dmlab_standin else ARENA
    args = f'settings = {{ episodeLengthSeconds = "2" }}\nlevel_cache = "{config}/maps"\n'
    config.write_text(f'env = "dmlab/{level}"\n[env_args]\n{args}')
    options = ("--tasks", "pc,vr,rp", "--agents", 4, "--steps", 320, "--hidden", 32, "--replay_size", 100)
    options += ("--min_batch", 80)
    with Training(tmp_path, "--config", config, *options, *flags) as run:
        assert run.end() == 0, run.stderr
        lines = run.lines()
        assert run.stderr.count("cannot cache maps in") == (lab is dmlab_standin)
    last = lines[-1]
    assert last["stopped_by"] == "steps" and last["step"] >= 320
    assert last["updates"] > 0 and last["episodes"] >= 4 and last["skipped"] == 0
    for name in ("base", "pc", "vr"):
        losses = [line[f"loss_{name}"] for line in lines if line[f"loss_{name}"] is not None]
        assert losses and np.isfinite(losses).all()
