"""The games as Gymnasium environments, side by side with ale-py's."""

import pickle
import subprocess
import sys

import ale_py
import gymnasium
import numpy as np
import pytest
from gunreal_emulator import AtariEnv, games
from gunreal_emulator.registration import env_id
from gymnasium.utils.env_checker import check_env

gymnasium.register_envs(ale_py)


@pytest.mark.parametrize("options", [{"obs_type": "ram", "frameskip": (2, 5)}, {"full_action_space": True}])
def test_episodes_are_those_of_ale(options):
    """Also those after the first one, which depend on it in Solaris."""
    ours, theirs = [
        gymnasium.make(f"{name}/Solaris-v5", repeat_action_probability=0.0, **options) for name in ("gunreal", "ALE")
    ]
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    assert ours.unwrapped.get_action_meanings() == theirs.unwrapped.get_action_meanings()
    for seed in (3, None):
        results = ours.reset(seed=seed), theirs.reset(seed=seed)
        ours.action_space.seed(1)
        for _ in range(60):
            np.testing.assert_array_equal(results[0][0], results[1][0])
            assert results[0][1:] == results[1][1:]
            action = ours.action_space.sample()
            results = ours.step(action), theirs.step(action)


def test_an_episode_ends_as_in_ale():
    limit = {"max_num_frames_per_episode": 110, "repeat_action_probability": 0.0}
    environments = [gymnasium.make(f"{name}/Breakout-v5", **limit) for name in ("gunreal", "ALE")]
    for env in environments:
        env.reset(seed=0)
    for _ in range(30):
        results = [env.step(0)[1:] for env in environments]
        assert results[0] == results[1]
    assert results[0][2]


@pytest.mark.parametrize("game", ["pong", "air_raid", "montezuma_revenge"])
def test_gymnasium_finds_no_fault(game):
    env = gymnasium.make(env_id(game), render_mode="rgb_array").unwrapped
    check_env(env)
    np.testing.assert_array_equal(env.render(), env.reset(seed=1)[0])


def test_every_game_is_registered_with_the_settings_of_ale():
    assert len(games()) > 100
    for game in games():
        ours, theirs = gymnasium.spec(env_id(game)), gymnasium.spec(env_id(game).replace("gunreal/", "ALE/"))
        assert ours.kwargs == theirs.kwargs
    env = gymnasium.make_vec("gunreal/Pong-v5", num_envs=2)
    assert env.reset(seed=0)[0].shape == (2, 4, 84, 84)


def test_an_id_with_the_module_imports_it():
    code = "import gymnasium; print(gymnasium.make('gunreal_emulator:gunreal/Pong-v5').reset(seed=0)[0].shape)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "(210, 160, 3)\n", done.stderr


def test_the_wrappers_of_gymnasium_fit():
    ours, theirs = [
        gymnasium.wrappers.AtariPreprocessing(
            gymnasium.make(f"{name}/Breakout-v5", frameskip=1, repeat_action_probability=0.0),
            terminal_on_life_loss=True,
        )
        for name in ("gunreal", "ALE")
    ]
    results = ours.reset(seed=2), theirs.reset(seed=2)
    for _ in range(30):
        np.testing.assert_array_equal(results[0][0], results[1][0])
        assert results[0][1:] == results[1][1:]
        results = ours.step(1), theirs.step(1)


def test_it_can_be_pickled():
    env = pickle.loads(pickle.dumps(AtariEnv("pong", obs_type="ram", repeat_action_probability=0.5)))
    assert env.observation_space.shape == (128,)


@pytest.mark.parametrize(
    "options", [{"obs_type": "sound"}, {"frameskip": 0}, {"frameskip": (3, 3)}, {"render_mode": "human"},
                {"repeat_action_probability": 2}]
)  # fmt: skip
def test_invalid_arguments(options):
    with pytest.raises(gymnasium.error.Error, match=f"^{next(iter(options))} is "):
        AtariEnv("pong", **options)
