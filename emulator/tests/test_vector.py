"""`VectorAtari` beside single consoles and OpenCV."""

import subprocess
import sys

import cv2
import numpy as np
import pytest
from gunreal_emulator import UnknownGame, VectorAtari
from gunreal_emulator.console import Console
from gunreal_emulator.games import find_game
from gunreal_emulator.settings import gray_palette
from gymnasium.vector import AutoresetMode


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
    ("breakout", (84, 84), 4, True), ("asterix", (64, 42), 3, True), ("seaquest", (105, 80), 4, True),
    ("qbert", (96, 96), 4, False), ("trondead", (84, 84), 4, True), ("pong", None, 1, True),
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


@pytest.fixture(params=["cpu", "jax"])
def device(request):
    if request.param != "cpu":
        pytest.importorskip(request.param)
    return request.param


@pytest.mark.parametrize("game", ["seaquest", "adventure", "pooyan"])  # with 210, 250 and 220 rows
@pytest.mark.parametrize("grayscale", [True, False])
def test_pictures_of_every_size_are_those_of_opencv(game, grayscale):
    rng, palette = np.random.default_rng(0), gray_palette(find_game(game).pal)
    sizes = [(84, 84), (42, 160), (125, 4), (1, 1), (250, 160), (125, 80), (84, 200), (420, 320), (211, 161), (1000, 7)]
    sizes += [(int(rng.integers(1, 400)), int(rng.integers(1, 320))) for _ in range(20)]
    for size in sizes:
        env = VectorAtari(game, size=size, grayscale=grayscale, maximum=False, frame_skip=30)
        env.reset(seed=0)
        frame = env.step(np.ones(1, int))[0][0]
        picture = palette[env.screen(0)] if grayscale else env.render()[0]
        wanted = cv2.resize(picture, size[::-1], interpolation=cv2.INTER_AREA).reshape(*size, -1)
        np.testing.assert_array_equal(frame, wanted.transpose(2, 0, 1), str(size))


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


def test_a_masked_reset_leaves_the_others_alone(device):
    env = VectorAtari("pong", 2, device)
    first, _ = env.reset(seed=1)
    mask = {"reset_mask": np.array([True, False])}
    seen = play(env, 25)[-1][0]  # with the moving ball
    before, states = env.ram(), env.save()
    frames, _ = env.reset(seed=1, options=mask)
    after = env.ram()
    np.testing.assert_array_equal(before[1], after[1])
    assert (before[0] != after[0]).any()
    np.testing.assert_array_equal(frames[1], seen[1])
    np.testing.assert_array_equal(frames[0], first[0])
    np.testing.assert_array_equal(env.reset(seed=1, options=mask)[0], frames)
    env.restore(states)  # which hold no observations
    alone = env.reset(seed=1, options=mask)[0][1]
    assert (alone <= seen[1]).all() and (alone != seen[1]).any()


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
    env = VectorAtari("pong", 2)
    assert env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    observation, info = env.reset(seed=3)
    assert observation in env.observation_space and info["lives"].shape == (2,)
    assert env.step(env.action_space.sample())[0] in env.observation_space
    assert env.render()[0].shape == (210, 160, 3)


@pytest.mark.parametrize("change", [
    {"game": "pitfall2"}, {"protocol": "v9"}, {"device": "tpu"}, {"num_envs": 0}, {"render_mode": "human"},
    {"size": (0, 84)}, {"size": (84, -84)}, {"size": (84, 8.5)}, {"frame_skip": 0}, {"noop_max": -1},
    {"max_num_frames_per_episode": 2**31}, {"num_envs": 2.5}, {"num_threads": -1}, {"num_threads": 2**31},
    {"difficulty": 4}, {"game": "seaquest", "difficulty": 3},
    {"repeat_action_probability": 1.5},
    {"repeat_action_probability": float("nan")}, {"repeat_action_probability": "0.5"}, {"size": 84}, {"size": (84,)},
    {"difficulty": 1.0}, {"difficulty": None}, {"difficulty": -1}, {"mode": "0"}, {"mode": 0.0}, {"mode": [0]},
    {"game": None}, {"game": [None]}, {"game": []}, {"game": 3}, {"num_envs": True}, {"num_envs": None},
    {"protocol": None}, {"protocol": []}, {"frame_skip": True},
])  # fmt: skip
def test_bad_arguments_are_one_line(change):
    with pytest.raises((UnknownGame, ValueError)) as error:
        VectorAtari(**{"game": "pong", **change})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("k", [-1, 2])
def test_a_screen_is_that_of_a_console(device, k):
    env = VectorAtari("pong", 2, device)
    env.reset(seed=1)
    with pytest.raises(ValueError, match=f"k is {k}, but must be"):
        env.screen(k)


def test_consoles_that_cannot_be_used_say_why(device):
    env = VectorAtari("pong", 2, device)
    for use in (env.ram, env.save, env.render, lambda: env.step(np.zeros(2, int))):
        with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
            use()
    env.reset(seed=1)
    env.send(np.zeros(2, int))
    for use in (env.ram, env.save, env.render, lambda: env.step(np.zeros(2, int)), env.reset):
        with pytest.raises(RuntimeError, match=r"call recv\(\) first"):
            use()
    env.recv()
    env.close()
    for use in (env.ram, env.save, env.render, lambda: env.step(np.zeros(2, int)), env.reset, lambda: env.restore([])):
        with pytest.raises(RuntimeError, match="closed"):
            use()


def test_inputs_of_another_shape_are_refused():
    env = VectorAtari("pong", 4)
    env.reset(seed=1)
    with pytest.raises(ValueError, match="give 4 whole numbers"):
        env.step(np.zeros(1, int))
    with pytest.raises(ValueError, match="the actions are None; give one whole number for each console"):
        env.step(None)
    with pytest.raises(ValueError, match="reset_mask has shape"):
        env.reset(options={"reset_mask": np.ones(1, bool)})
    with pytest.raises(ValueError, match="got 3 seeds for 4 consoles"):
        env.reset(seed=[1, 2, 3])
    for seed in (-1, 2**32):
        with pytest.raises(ValueError, match="the seeds are .*, but must be from 0 to 4294967295"):
            env.reset(seed=seed)


def test_seeds_as_gymnasium_gives_them():
    first, second = (VectorAtari("pong", 3, protocol="v5") for _ in range(2))

    def starts(env, seed):
        env.reset(seed=seed)
        for _ in range(3):
            env.step(np.full(3, 2))
        return env.save()  # sticky actions depend on the seed

    assert starts(first, 5) == starts(second, [5, 6, 7]) == starts(first, (5, 6, 7))
    assert starts(first, np.arange(6)[::2]) == starts(second, [0, 2, 4])  # not contiguous
    first.reset(seed=9)
    second.reset(seed=9)
    drawn = starts(first, None)
    assert drawn == starts(second, None) != starts(second, None)
    assert starts(first, [1, None, 3])[::2] == starts(second, [1, 2, 3])[::2]


FORK = """
import os
import numpy as np
from gunreal_emulator import VectorAtari

env = VectorAtari("pong", 2, num_threads=2)
env.reset(seed=1)
if child := os.fork():
    env.step(np.zeros(2, int))
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    env.step(np.zeros(2, int))
except RuntimeError as error:
    env.close()
    print(error)
"""


def test_a_fork_says_that_its_threads_are_gone():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (
        0,
        "threads do not survive a fork; create the environment in this process\n",
    )


def test_too_little_memory_is_an_error():
    code = (
        "import resource; from gunreal_emulator import VectorAtari; VectorAtari('pong');"
        "resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30)); VectorAtari('pong', 100_000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "MemoryError: there is too little memory for 100000 consoles" in done.stderr
