"""`AtariVectorEnv` side by side with ale-py's."""

import inspect
import os
import signal
import threading

import gymnasium
import numpy as np
import pytest
from ale_py import vector_env as peer
from gunreal_emulator import AtariVectorEnv, UnknownGame, VectorAtari
from gymnasium.vector import AutoresetMode


def assert_equal(ours, theirs):
    """Compares the results of a reset or step."""
    for a, b in zip(ours[:-1], theirs[:-1], strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    infos = [dict(ours[-1]), dict(theirs[-1])]
    assert list(infos[0]) == list(infos[1])
    if "final_obs" in infos[0]:  # that of the consoles that go on has no meaning
        ended = ours[2] | ours[3]
        np.testing.assert_array_equal(*(info.pop("final_obs")[ended] for info in infos))
    for name, value in infos[0].items():
        assert value.dtype == infos[1][name].dtype
        np.testing.assert_array_equal(value, infos[1][name], name)


@pytest.mark.parametrize(
    ("game", "options"),
    [
        ("breakout", {"max_num_frames_per_episode": 150}),
        ("breakout", {"episodic_life": True, "autoreset_mode": AutoresetMode.SAME_STEP}),
        ("breakout", {"life_loss_info": True, "reward_clipping": False, "use_fire_reset": False}),
        ("breakout", {"episodic_life": True, "frameskip": 3, "grayscale": False, "img_height": 210, "img_width": 160}),
        ("ms_pacman", {"max_num_frames_per_episode": 203, "maxpool": False, "stack_num": 2, "noop_max": 7}),
        ("assault", {"max_num_frames_per_episode": 203, "autoreset_mode": "SameStep", "full_action_space": True}),
    ],
)
def test_episodes_are_those_of_ale(game, options):
    ours, theirs = AtariVectorEnv(game, 3, **options), peer.AtariVectorEnv(game, 3, **options)
    for name in ("observation_space", "action_space", "single_observation_space", "single_action_space", "metadata"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.ale.get_action_set() == theirs.ale.get_action_set()
    random, ended = np.random.default_rng(0), 0
    assert_equal(ours.reset(seed=5), theirs.reset(seed=5))
    for step in range(210):
        if step == 150:  # the random numbers continue
            assert_equal(ours.reset(), theirs.reset())
        actions = random.integers(ours.single_action_space.n, size=3)
        results = ours.step(actions)
        assert_equal(results, theirs.step(actions))
        ended += (results[2] | results[3]).sum()
    assert ended > 2


def test_the_arguments_have_the_defaults_of_ale():
    ours, theirs = [
        [(name, of.default, of.kind) for name, of in inspect.signature(cls).parameters.items()]
        for cls in (AtariVectorEnv, peer.AtariVectorEnv)
    ]
    assert ours == theirs


def test_masked_resets_are_those_of_ale():
    environments = AtariVectorEnv("breakout", 3), peer.AtariVectorEnv("breakout", 3)
    actions, options = np.ones(3, np.int32), {"reset_mask": np.array([False, True, False])}
    for env in environments:
        env.reset(seed=np.arange(3))
        env.step(actions)
    assert_equal(*(env.reset(seed=9, options=options) for env in environments))
    assert_equal(*(env.step(actions) for env in environments))


def test_a_seed_repeats_sticky_actions():
    env = AtariVectorEnv("breakout", 2, repeat_action_probability=0.25)
    actions, runs = np.random.default_rng(0).integers(4, size=(60, 2)), []
    for seed in (1, 1, 2):
        env.reset(seed=seed)
        runs.append(np.stack([env.step(row)[0] for row in actions]))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_batch_has_the_consoles_that_finish_first(threads):
    """Each console makes the same steps as in a batch of all, in any order."""
    steps = np.random.default_rng(0).integers(4, size=(80, 5))
    alone, env = AtariVectorEnv("breakout", 5), AtariVectorEnv("breakout", 5, batch_size=2, num_threads=threads)
    wanted = [alone.reset(seed=3)[0], *(alone.step(row)[0] for row in steps)]
    made = np.zeros(5, int)
    frames, info = env.reset(seed=3)
    while True:
        ids = info["env_id"]
        assert frames.shape == (2, 4, 84, 84) and len(set(ids.tolist())) == 2
        for frame, k in zip(frames, ids, strict=True):
            np.testing.assert_array_equal(frame, wanted[made[k]][k])
        if (made[ids] == len(steps)).any():
            break
        actions = np.array([steps[made[k], k] for k in ids])
        made[ids] += 1
        frames, _, _, _, info = env.step(actions)
    assert made.min() > 10 or threads > 1  # of several threads, the system may stop one for long
    env.reset(seed=3)  # steps that were not received are lost
    env.close()


def test_without_automatic_resets_an_episode_that_is_over_needs_a_mask():
    env = AtariVectorEnv("breakout", 2, autoreset_mode="Disabled", episodic_life=True, num_threads=1)
    env.reset(seed=0)
    terminated = np.zeros(2, bool)
    while not terminated.any():
        terminated = env.step(np.zeros(2, int))[2]
    with pytest.raises(RuntimeError, match=r"are over; reset them with the option reset_mask"):
        env.step(np.zeros(2, int))
    _, info = env.reset(options={"reset_mask": terminated})
    assert (info["lives"][terminated] == 5).all()
    assert not env.step(np.zeros(2, int))[2][terminated].any()


def test_without_automatic_resets_each_episode_that_is_over_needs_one():
    env = AtariVectorEnv("pong", 2, autoreset_mode="Disabled", max_num_frames_per_episode=8, num_threads=1)
    env.reset(seed=0)
    while not env.step(np.zeros(2, int))[3].all():
        pass
    env.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(RuntimeError, match=r"episodes of \[1\] are over"):
        env.step(np.zeros(2, int))


def test_a_lost_life_that_is_only_reported_needs_no_reset():
    env = AtariVectorEnv("breakout", 1, autoreset_mode="Disabled", life_loss_info=True)
    _, info = env.reset(seed=0)
    while info["lives"][0] > 3:
        _, _, terminated, _, info = env.step(np.ones(1, int))  # FIRE
    assert terminated[0]


def test_the_largest_limit_of_frames_is_none():
    env = AtariVectorEnv("breakout", 1, max_num_frames_per_episode=2**31 - 1)
    env.reset(seed=0)
    assert not any(env.step(np.zeros(1, int))[3] for _ in range(5))


@pytest.mark.parametrize(
    "make",
    [lambda: AtariVectorEnv("pong", 2, frameskip=1000), lambda: VectorAtari("pong", 2, num_threads=2, frame_skip=1000)],
)
def test_a_step_that_ctrl_c_has_interrupted_is_lost(make):
    env = make()
    env.reset(seed=0)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        while True:
            env.step(np.zeros(2, int))
    env.step(np.zeros(2, int))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"game": "pongg"}, UnknownGame, "did you mean pong"),
        ({"num_envs": 0}, ValueError, "num_envs is 0"),
        ({"batch_size": 3}, ValueError, "batch_size is 3"),
        ({"stack_num": 0}, ValueError, "stack_num is 0"),
        ({"frameskip": 4.0}, gymnasium.error.Error, "frameskip is 4.0"),
        ({"autoreset_mode": "never"}, ValueError, "never"),
        ({"continuous": True}, ValueError, "continuous actions are not supported; use ale_py"),
    ],
)
def test_invalid_arguments(options, error, message):
    with pytest.raises(error, match=message):
        AtariVectorEnv(**{"game": "pong", "num_envs": 2, **options})


def test_invalid_calls():
    env = AtariVectorEnv("pong", 2)
    one = {"reset_mask": np.array([True, False])}
    for error, call, message in (
        (RuntimeError, lambda: env.step(np.zeros(2, int)), "call reset"),
        (RuntimeError, lambda: env.reset(options=one), "first reset"),
        (TypeError, lambda: env.reset(options={"reset_mask": [True, False]}), "boolean numpy array"),
        (TypeError, lambda: env.reset(seed=[1, 2]), "seed must be"),
        (ValueError, lambda: env.reset(seed=np.arange(2), options=one), "one entry per sub-environment"),
    ):
        with pytest.raises(error, match=message):
            call()
    env.reset()
    for error, call, message in (
        (AssertionError, lambda: env.step([0, 0]), "numpy array"),
        (AssertionError, lambda: env.step(np.zeros(2)), "int32 or int64"),
        (AssertionError, lambda: env.step(np.zeros(3, int)), "give 2 actions"),
        (ValueError, lambda: env.step(np.array([0, 6])), "from 0 to 5"),
        (RuntimeError, env.recv, "call send"),
    ):
        with pytest.raises(error, match=message):
            call()
    env.send(np.zeros(2, int))
    with pytest.raises(RuntimeError, match="call recv"):
        env.send(np.zeros(2, int))
    env.close()
    with pytest.raises(RuntimeError, match="closed"):
        env.reset()
