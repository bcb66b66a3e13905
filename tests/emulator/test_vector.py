"""`VectorAtari` beside single consoles and OpenCV."""

import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from gunreal.emulator import UnknownGame, VectorAtari
from gunreal.emulator.console import Console
from gunreal.emulator.settings import gray_palette


def reference(console, palette, action, skip, maximum):
    """Reward, picture and end of one agent step that is played frame by frame with every frame drawn."""
    reward, pictures = 0, []
    for _ in range(skip):
        reward += console.act(action)
        pictures.append(palette[console.getScreen()])
        if console.game_over():
            return reward, pictures[-1], True
    return reward, np.maximum(pictures[-1], pictures[-2]) if maximum and skip > 1 else pictures[-1], False


@pytest.mark.parametrize("game, size, skip, maximum", [
    ("breakout", (84, 84), 4, True), ("asterix", (64, 42), 3, True), ("qbert", (96, 96), 4, False),
    ("trondead", (84, 84), 4, True), ("pong", None, 1, True),
])  # fmt: skip
def test_steps_are_those_of_a_console_and_pictures_those_of_opencv(game, size, skip, maximum):
    env = VectorAtari(game, 2, protocol="deterministic", size=size, noop_max=0, frame_skip=skip, maximum=maximum)
    env.reset(seed=0)
    console = Console(game)
    console.start_game()
    palette = gray_palette(console.game.pal)
    rng, done = np.random.default_rng(0), False
    for _ in range(300):
        actions = rng.integers(env.single_action_space.n, size=2)
        frames, reward, terminated, truncated, info = env.step(actions)
        if done:
            console.start_game()
            assert reward[0] == 0 and not terminated[0]
            done = False
            continue
        wanted, picture, done = reference(console, palette, env.game.actions[actions[0]], skip, maximum)
        if size:
            picture = cv2.resize(picture, size[::-1], interpolation=cv2.INTER_AREA)
        np.testing.assert_array_equal(frames[0, 0], picture)
        assert (reward[0], terminated[0], truncated[0], info["lives"][0]) == (wanted, done, False, console.lives())
        np.testing.assert_array_equal(env.ram()[0], console.getRAM())


def play(env, steps, seed=0):
    rng = np.random.default_rng(seed)
    return [env.step(rng.integers(env.single_action_space.n, size=env.num_envs)) for _ in range(steps)]


def same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        for x, y in zip(a[:4], b[:4], strict=True):
            np.testing.assert_array_equal(x, y)


def test_an_episode_depends_on_its_seed_alone_whatever_the_threads():
    runs = []
    for threads in (0, 3):
        env = VectorAtari("breakout", 5, num_threads=threads)
        env.reset(seed=9)
        runs.append(play(env, 60))
        env.close()
    same(*runs)
    env = VectorAtari("breakout", 5)
    env.reset(seed=10)
    assert any((a[0] != b[0]).any() for a, b in zip(runs[0], play(env, 60), strict=True))


def test_save_and_restore_go_on_exactly():
    env = VectorAtari("seaquest", 3)
    env.reset(seed=1)
    play(env, 20)
    states = env.save()
    first = play(env, 30, seed=5)
    env.restore(states)
    same(first, play(env, 30, seed=5))


def test_a_masked_reset_leaves_the_others_alone():
    env = VectorAtari("pong", 2)
    env.reset(seed=1)
    play(env, 10)
    before = env.ram()
    env.reset(seed=1, options={"reset_mask": np.array([True, False])})
    after = env.ram()
    np.testing.assert_array_equal(before[1], after[1])
    assert (before[0] != after[0]).any()


def test_truncation_is_not_termination():
    env = VectorAtari("pong", 1, max_num_frames_per_episode=40, noop_max=0)
    env.reset(seed=0)
    steps = play(env, 12)
    assert [int(s[3][0]) for s in steps] == [0] * 9 + [1] + [0] * 2
    assert not any(s[2][0] for s in steps)
    assert steps[10][4]["episode_frame_number"][0] == 0


def test_sticky_actions_repeat_the_action_before():
    never, always = (VectorAtari("boxing", 1, repeat_action_probability=p, noop_max=0) for p in (0.0, 1.0))
    for env in (never, always):
        env.reset(seed=0)
    other = VectorAtari("boxing", 1, repeat_action_probability=0.0, noop_max=0)
    other.reset(seed=0)
    for _ in range(30):
        never.step(np.array([3]))
        always.step(np.array([3]))
        other.step(np.array([0]))
    np.testing.assert_array_equal(always.ram(), other.ram())
    assert (never.ram() != other.ram()).any()


def test_it_is_gymnasiums_interface():
    env = gymnasium.make_vec("gunreal/Pong", num_envs=2)
    assert env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    observation, info = env.reset(seed=3)
    assert observation in env.observation_space and info["lives"].shape == (2,)
    assert env.step(env.action_space.sample())[0] in env.observation_space
    assert env.unwrapped.render()[0].shape == (210, 160, 3)


@pytest.mark.parametrize("change", [{"game": "pitfall2"}, {"protocol": "v9"}, {"device": "tpu"}, {"num_envs": 0}])
def test_bad_arguments_are_one_line(change):
    with pytest.raises((UnknownGame, ValueError)) as error:
        VectorAtari(**{"game": "pong", **change})
    assert "\n" not in str(error.value)
    with pytest.raises(RuntimeError, match="reset"):
        VectorAtari("pong").step(np.zeros(1, int))
