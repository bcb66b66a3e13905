"""`DeviceAtari` inside compiled JAX programs, beside `VectorAtari`."""

from types import SimpleNamespace

import numpy as np
import pytest
from gunreal_emulator import VectorAtari
from gunreal_emulator.native import TAG

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from gunreal_emulator import ffi  # noqa: E402
from gunreal_emulator.ffi import AtariState, DeviceAtari  # noqa: E402


@pytest.mark.parametrize("game, options", [
    ("breakout", {}), ("trondead", {"protocol": "deterministic", "max_num_frames_per_episode": 500}),
    ("pong", {"size": None, "grayscale": False, "max_num_frames_per_episode": 40, "full_action_space": True}),
])  # fmt: skip
def test_episodes_are_those_of_the_vector_environment(game, options):
    n, steps = 5, 300
    ours, theirs = DeviceAtari(game, n, **options), VectorAtari(game, n, **options)
    actions = np.random.default_rng(0).integers(ours.num_actions, size=(steps, n), dtype=np.int32)
    state = ours.init(jnp.arange(n) + 7)
    first, _ = theirs.reset(seed=7)
    np.testing.assert_array_equal(ours.observe(state), first)

    @jax.jit
    def play(state, actions):
        def step(state, action):
            state, *results = ours.step(state, action)
            return state, results

        return jax.lax.scan(step, state, actions)

    state, results = play(state, actions)
    ends = 0
    for k in range(steps):
        frames, rewards, terminated, truncated, _ = theirs.step(actions[k])
        for got, wanted in zip(results, (frames, rewards, terminated, truncated), strict=True):
            np.testing.assert_array_equal(got[k], wanted)
        ends += (terminated | truncated).sum()
    assert ends
    saved = [np.concatenate([row.ravel() for row in console]) for console in zip(*map(np.asarray, state), strict=True)]
    assert [bytes(console) for console in saved] == [state[TAG:] for state in theirs.save()]


def test_a_donated_state_is_overwritten_and_another_one_is_kept():
    env = DeviceAtari("pong", 2)
    state, actions = env.init(np.array([1, 2])), jnp.zeros(2, jnp.int32)
    before = jax.tree.map(np.array, state)
    kept, *_ = jax.jit(env.step)(state, actions)
    jax.tree.map(np.testing.assert_array_equal, state, before)
    addresses = [part.unsafe_buffer_pointer() for part in state]
    moved, *_ = jax.jit(env.step, donate_argnums=0)(state, actions)
    assert [part.unsafe_buffer_pointer() for part in moved] == addresses
    jax.tree.map(np.testing.assert_array_equal, kept, moved)


def test_a_part_of_the_consoles_plays_alone():
    env = DeviceAtari("pong", 4)
    state, actions = env.init(np.arange(4)), jnp.arange(4)
    whole = env.step(state, actions)
    part = env.step(AtariState(*(x[1:3] for x in state)), actions[1:3])
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[1:3], b), whole, part)


def test_an_action_that_the_game_lacks_is_no_action():
    env = DeviceAtari("pong", 3)
    state = env.init(np.zeros(3))
    after, *_ = env.step(state, jnp.array([0, env.num_actions, -1]))
    np.testing.assert_array_equal(after.players[1:], np.repeat(after.players[:1], 2, axis=0))


@pytest.mark.parametrize(("platform", "wanted"), [("cpu", []), ("gpu", [("CUDA", "sm_90")])])
def test_the_functions_are_registered_for_the_device_of_the_consoles(monkeypatch, platform, wanted):
    """Which need not be the default device of JAX."""
    registered = []
    monkeypatch.setattr(ffi, "_register_for", lambda *of: registered.append(of))
    ffi._register(SimpleNamespace(platform=platform, compute_capability="9.0"))
    assert registered == [("cpu", ""), *wanted]


def test_a_state_of_consoles_with_more_games_does_no_harm():
    several, one = DeviceAtari(["pong", "breakout", "qbert"], 6), DeviceAtari("pong", 6)
    state, frames, *_ = one.step(several.init(jnp.arange(6)), jnp.zeros(6))
    assert frames.shape == one.observe(state).shape == (6, 1, 84, 84)


def test_bad_arguments_are_one_line():
    with pytest.raises(ValueError, match="num_envs"):
        DeviceAtari("pong", 0)
    state = DeviceAtari("pong", 2).init(jnp.arange(2))
    with pytest.raises(ValueError, match="of other games"):
        DeviceAtari("adventure", 2).observe(state)
    with pytest.raises(ValueError, match="of other games"):
        DeviceAtari("adventure", 2).step(state, jnp.zeros(2))
    with pytest.raises(ValueError, match="actions have shape"):
        DeviceAtari("pong", 2).step(state, jnp.zeros(()))
    with pytest.raises(ValueError, match="lanes"):
        DeviceAtari("pong", 1, lanes=33)
    with pytest.raises(ValueError, match="one for each"):
        DeviceAtari("pong", 2).init(np.arange(3))
