"""The road of `VectorAtari` to a GPU, with the CPU as the default device of JAX, beside its road to the CPU."""

import numpy as np
import pytest
from gunreal_emulator import EmulatorUnavailable, VectorAtari

jax = pytest.importorskip("jax")

OPTIONS = {"full_action_space": True, "max_num_frames_per_episode": 120}


def pair(game, n, **options):
    """Returns two equal environments, on the CPU and on the default device of JAX."""
    return [VectorAtari(game, n, device=device, **OPTIONS | options) for device in ("cpu", "jax")]


def play(envs, steps, seed=0):
    """Plays the same actions in two environments, and compares all results."""
    rng, ends = np.random.default_rng(seed), 0
    for _ in range(steps):
        actions = rng.integers(envs[0].single_action_space.n, size=envs[0].num_envs)
        results = [env.step(actions) for env in envs]
        jax.tree.map(np.testing.assert_array_equal, *results)
        ends += (results[0][2] | results[0][3]).sum()
    return ends


@pytest.mark.parametrize("game", ["breakout", ["pong", "ms_pacman", "adventure"]])
def test_both_play_the_same(game):
    envs = pair(game, 5)
    first, second = [env.reset(seed=4) for env in envs]
    jax.tree.map(np.testing.assert_array_equal, first, second)
    assert play(envs, 80) >= 5
    mask = np.array([True, False, False, True, False])
    jax.tree.map(np.testing.assert_array_equal, *[env.reset(seed=9, options={"reset_mask": mask}) for env in envs])
    play(envs, 20, seed=1)
    np.testing.assert_array_equal(*[env.ram() for env in envs])
    jax.tree.map(np.testing.assert_array_equal, *[env.render() for env in envs])
    for env in envs:
        env.close()


@pytest.mark.parametrize("game", ["seaquest", ["pong", "adventure"]])
def test_states_move_between_the_devices(game):
    cpu, gpu = pair(game, 3)
    for env, seed in ((cpu, 1), (gpu, 50)):
        env.reset(seed=seed)
    for _ in range(10):
        cpu.step(np.full(3, 2))
    gpu.restore(cpu.save())
    play((cpu, gpu), 40)
    for _ in range(10):
        gpu.step(np.full(3, 3))
    cpu.restore(gpu.save())
    play((cpu, gpu), 40, seed=2)
    with pytest.raises(ValueError, match="a state for each of the 3 consoles"):
        cpu.restore(gpu.save()[:2])


def test_an_action_that_a_game_does_not_have_does_nothing():
    pair_of_games = [VectorAtari(["pong", "breakout"], 4, device=device) for device in ("cpu", "jax")]
    only = VectorAtari("breakout", 2)
    assert only.single_action_space.n == 4 and all(env.single_action_space.n == 6 for env in pair_of_games)
    for env in (*pair_of_games, only):
        env.reset(seed=[1, 2, 3, 4][-env.num_envs :])
    for step in range(12):  # FIRE starts the ball of Breakout, which RIGHTFIRE and LEFTFIRE of Pong must not
        frames = [env.step(np.full(4, 1 if step == 2 else 4 + step % 2))[0] for env in pair_of_games]
        alone = only.step(np.full(2, 1 if step == 2 else 0))[0]
        np.testing.assert_array_equal(frames[0][2:], alone)
        np.testing.assert_array_equal(frames[0], frames[1])
    for action in (-1, 4):
        with pytest.raises(ValueError, match="whole numbers from 0 to 3"):
            only.step(np.full(2, action))
    for env in (only, pair_of_games[1]):
        with pytest.raises(ValueError, match="whole numbers"):
            env.step(np.zeros(env.num_envs))


def test_several_games_play_as_each_alone():
    games = ["pong", "breakout", "qbert"]
    together = VectorAtari(games, 7, num_threads=2, **OPTIONS)
    alone = [VectorAtari(game, n, **OPTIONS) for game, n in zip(games, (3, 2, 2), strict=True)]
    together.reset(seed=list(range(7)))
    for env, first in zip(alone, (0, 3, 5), strict=True):
        env.reset(seed=list(range(first, first + env.num_envs)))
    rng = np.random.default_rng(0)
    for _ in range(40):
        actions = rng.integers(18, size=7)
        parts = [env.step(part) for env, part in zip(alone, np.split(actions, (3, 5)), strict=True)]
        for got, *wanted in zip(together.step(actions)[:4], *[part[:4] for part in parts], strict=True):
            np.testing.assert_array_equal(got, np.concatenate(wanted))
    with pytest.raises(ValueError, match="sizes"):
        VectorAtari(["pong", "adventure"], 4, size=None)
    with pytest.raises(ValueError, match="num_envs"):
        VectorAtari(games, 2)


def test_other_libraries_take_the_results_without_a_copy():
    cpu, gpu = pair("pong", 2)
    frames, _ = cpu.reset(seed=0)
    assert jax.dlpack.from_dlpack(frames, copy=False).unsafe_buffer_pointer() == frames.ctypes.data
    frames, _ = gpu.reset(seed=0)
    assert np.from_dlpack(frames).ctypes.data == frames.unsafe_buffer_pointer()


class Foreign:
    """An array of another library, which offers nothing but DLPack."""

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def test_actions_may_come_from_another_library():
    _, gpu = pair("pong", 2)
    gpu.reset(seed=0)
    states, actions = gpu.save(), np.array([2, 3], np.int32)
    frames, *_ = gpu.step(Foreign(actions))
    gpu.restore(states)
    np.testing.assert_array_equal(frames, gpu.step(actions)[0])


def test_without_a_gpu_the_error_is_one_line():
    if any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("there is a GPU")
    with pytest.raises(EmulatorUnavailable, match="no CUDA GPU") as error:
        VectorAtari("pong", device="cuda")
    assert "\n" not in str(error.value)
