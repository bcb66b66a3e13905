"""The code of the GPU, run on the CPU with the lanes of a warp in turn, beside the engine of the CPU."""

import ctypes

import numpy as np
import pytest
from gunreal_emulator import VectorAtari, build
from gunreal_emulator.native import TAG
from gunreal_emulator.pack import pack, player_offset, state_shapes
from gunreal_emulator.settings import settings

_NAMES = ("pack", "players", "screens", "spare", "actions", "frames", "reward", "terminated", "truncated")


class Batch(ctypes.Structure):
    """The structure `Batch` of warp.h."""

    _fields_ = [(name, ctypes.c_void_p) for name in _NAMES] + [("n", ctypes.c_int32)]


@pytest.fixture(scope="module")
def warp_steps():
    return ctypes.CDLL(str(build.cached("libatari_warp", "warp.cpp"))).atari_warp_steps


class Consoles:
    """Consoles of several games, which start where vector environments are."""

    def __init__(self, games, envs, options):
        self.games = [settings(game, **options) for game in games]
        self.n = n = sum(env.num_envs for env in envs)
        (size,), screens = state_shapes(self.games)
        self.arrays = {
            "pack": pack(self.games), "players": np.zeros((n, size), np.uint8),
            "screens": np.zeros((n, *screens), np.uint8), "spare": np.zeros((n, *screens[1:]), np.uint8),
            "actions": np.zeros(n, np.int32), "frames": np.zeros((n, *self.games[0].shape), np.uint8),
            "reward": np.zeros(n, np.float32), "terminated": np.zeros(n, bool), "truncated": np.zeros(n, bool),
        }  # fmt: skip
        states = [(k, state[TAG:]) for k, env in enumerate(envs) for state in env.save()]
        for console, (game, state) in enumerate(states):
            self.arrays["players"][console] = np.frombuffer(state[:size], np.uint8)
            pictures = np.frombuffer(state[size:], np.uint8)
            self.arrays["screens"][console].ravel()[: pictures.size] = pictures
            self.arrays["players"][console, player_offset("game")] = game

    def step(self, function, actions, lanes):
        self.arrays["actions"][:] = actions
        function(ctypes.byref(Batch(*[self.arrays[name].ctypes.data for name in _NAMES], self.n)), lanes)
        return [self.arrays[name].copy() for name in _NAMES[5:]]


@pytest.mark.parametrize("games, lanes, options", [
    (["breakout"], 32, {}), (["trondead"], 5, {"protocol": "deterministic"}),
    (["pong", "asterix", "adventure"], 32, {"full_action_space": True, "max_num_frames_per_episode": 200}),
    (["pong"], 4, {"size": (50, 70), "grayscale": False, "maximum": False, "max_num_frames_per_episode": 400}),
    (["breakout"], 12, {"size": (105, 80), "max_num_frames_per_episode": 400}),
    (["breakout"], 12, {"size": (84, 200), "max_num_frames_per_episode": 400}),
])  # fmt: skip
def test_the_lanes_of_a_warp_play_what_the_cpu_plays(warp_steps, games, lanes, options):
    envs = [VectorAtari(game, 12 // len(games), **options) for game in games]
    for k, env in enumerate(envs):
        env.reset(seed=3 + k)
    ours, rng = Consoles(games, envs, options), np.random.default_rng(0)
    ends = rewards = 0
    for _ in range(250):
        actions = [rng.integers(env.single_action_space.n, size=env.num_envs) for env in envs]
        steps = [env.step(a)[:4] for env, a in zip(envs, actions, strict=True)]
        wanted = [np.concatenate(parts) for parts in zip(*steps, strict=True)]
        for got, want in zip(ours.step(warp_steps, np.concatenate(actions), lanes), wanted, strict=True):
            np.testing.assert_array_equal(got, want)
        ends, rewards = ends + (wanted[2] | wanted[3]).sum(), rewards + (wanted[1] != 0).sum()
    assert ends and rewards


def test_a_game_that_the_pack_lacks_is_the_first_one(warp_steps):
    """Its index is that of a state of consoles with more games."""
    env = VectorAtari("pong", 3, max_num_frames_per_episode=200)
    env.reset(seed=3)
    ours, ends = Consoles(["pong"], [env], {"max_num_frames_per_episode": 200}), 0
    ours.arrays["players"][:, player_offset("game")] = 0, 1, 255
    for _ in range(60):
        wanted = env.step(np.zeros(3, int))[:4]
        for got, want in zip(ours.step(warp_steps, 0, 2), wanted, strict=True):
            np.testing.assert_array_equal(got, want)
        ends += wanted[3].sum()
    assert ends
