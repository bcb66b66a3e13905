"""A policy on raw observations, against the episodes that evaluation plays with the frames of training."""

from __future__ import annotations

import copy
import functools
import os

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from gunreal.acting import episodes
from gunreal.acting.policy import Policy, decide
from gunreal.config.schema import Config
from gunreal.envs.make import make_raw
from gunreal.envs.raw import Raw
from gunreal.experience.spec import Spec
from gunreal.learning.registry import interface
from gunreal.runtime.system import build_learner, on_this_machine

BACKEND = os.environ.get("KERAS_BACKEND", "tensorflow")


COMMON = {"hidden": 16, "backend": BACKEND, "normalize_observations": "off"}
CONFIGS = {
    "catch": Config(env="gunreal/Catch-v0", **COMMON),
    "atari": Config(env="ALE/Breakout-v5", protocol="v5", **COMMON),
    "vector": Config(env="CartPole-v1", **COMMON),
    "dict": Config(env="scripted_env:Noise-v0", frame_size=36, **COMMON),
    "lstm": Config(env="scripted_env:Noise-v0", frame_size=36, network="lstm", reward_clip=1.0, **COMMON),
}


@functools.cache
def actor(name):
    """A network whose policy depends much on what it gets: learner, interface and raw observations."""
    config = CONFIGS[name]
    spec, raw, config = interface(config)
    learner = build_learner(on_this_machine(config), spec, ())
    state = learner.get_state()
    state["weights/policy/kernel"] = 1000 * state["weights/policy/kernel"]
    learner.set_state(state)
    return learner, spec, raw


def evaluated(monkeypatch, learner, config, spec, count, **options):
    """The episodes of evaluation, one after the other, and all actions."""
    actions = []

    def record(*arguments):
        actions.extend(decide(*arguments))
        return actions[-1:]

    monkeypatch.setattr(episodes, "decide", record)
    monkeypatch.setattr(episodes, "_ENVIRONMENTS", 1)
    return list(episodes.play(learner, config, spec, count, **options)), actions


@pytest.mark.parametrize("sample", [True, False])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_loop_of_ones_own_plays_the_episodes_of_evaluation(monkeypatch, name, sample):
    config = CONFIGS[name]
    learner, spec, raw = actor(name)
    played, expected = evaluated(monkeypatch, learner, config, spec, 3, seed=5, sample=sample, max_steps=60)
    policy, env, actions = Policy(learner, config, spec, raw, sample=sample, seed=5), make_raw(config), []
    for episode in played:
        seed = policy.reset()
        observation, reward, score, done = env.reset(seed=seed)[0], 0.0, 0.0, False
        assert seed == episode.seed
        for _ in range(episode.length):
            assert not done
            action = policy.act(observation, reward)
            actions.append(action - raw.first_action)
            observation, reward, terminated, truncated, _ = env.step(action)
            score, done = score + reward, terminated or truncated
        assert done != episode.cut and score == pytest.approx(episode.score, rel=1e-5)
    env.close()
    assert actions == expected
    assert len(set(actions)) > 1 or not sample


def test_several_environments_at_once():
    config = CONFIGS["vector"]
    learner, spec, raw = actor("vector")
    expected = {e.number: e.length for e in episodes.play(learner, config, spec, 12)}
    mode = gymnasium.vector.AutoresetMode.DISABLED
    envs = gymnasium.vector.SyncVectorEnv([lambda: make_raw(config)] * 12, autoreset_mode=mode)
    policy = Policy(learner, config, spec, raw, 12)
    observation, _ = envs.reset(seed=policy.reset())
    played = []
    for length in range(1, 200):
        actions = policy.act(observation)
        assert actions.shape == (12,) and actions.dtype == np.int64
        observation, _, terminated, truncated, _ = envs.step(actions)
        done = terminated | truncated
        played += [(i, length) for i in np.nonzero(done)[0].tolist() if i not in dict(played)]
        if done.any():
            observation, _ = envs.reset(seed=policy.reset(done), options={"reset_mask": done})
    envs.close()
    assert dict(played) == expected


def test_a_mask_begins_the_next_episodes_of_these_environments():
    config = CONFIGS["vector"]
    learner, spec, raw = actor("vector")
    alone = Policy(learner, config, spec, raw)
    seeds = [alone.reset() for _ in range(6)]
    several = Policy(learner, config, spec, raw, 2)
    assert several.reset() == seeds[:2]
    assert several.reset([False, True]) == [seeds[0], seeds[3]]
    assert several.reset([True, True]) == [seeds[2], seeds[5]]


def test_a_recurrent_policy_keeps_one_past_per_environment():
    asked = []

    class Summing:
        """Its next state is the state plus the observation."""

        def predict(self, head, observations, past):
            asked.append(copy.deepcopy(past))
            return np.zeros((len(observations), 2), np.float32), np.zeros(len(observations)), past.state + observations

    spec = Spec((1,), 1, "float32", 2, state=1, reward_clip=1.0)
    policy = Policy(Summing(), Config(env="CartPole-v1"), spec, Raw(spaces.Box(-9, 9, (1,))), 2, sample=False)
    seen = np.array([[1], [2]], np.float32)
    policy.reset()
    policy.act(seen)
    policy.act(seen, [0.5, -0.25])
    assert asked[1].state.tolist() == [[1], [2]] and asked[1].last_reward.tolist() == [[0.5], [-0.25]]
    policy.reset([True, False])
    with pytest.raises(ValueError, match=r"takes the last reward too; use act\(observation, reward\)"):
        policy.act(seen)  # the reward of the environment that goes on is missing
    policy.act(seen, [0.0, 3.0])
    assert asked[2].state.tolist() == [[0], [4]] and asked[2].last_action.tolist() == [[-1], [0]]
    assert asked[2].last_reward.tolist() == [[0], [1]]


def test_a_state_that_does_not_fit_is_rejected_and_changes_nothing():
    config = CONFIGS["dict"]
    learner, spec, raw = actor("dict")
    policy = Policy(learner, config, spec, raw, sample=False)
    image, speed = np.zeros((30, 40, 3), np.uint8), np.zeros(1, np.float32)
    with pytest.raises(ValueError, match=r"call reset\(\) before"):
        policy.act({"image": image})
    policy.reset()
    for wrong in (image / 255, image[None], np.zeros((4, 30, 40), np.uint8)):
        with pytest.raises(ValueError, match="observ"):
            policy.act({"image": wrong, "speed": speed})
    stacked = np.zeros(spec.observation, np.uint8)
    with pytest.raises(ValueError, match=r"got uint8 \[4, 36, 36\]; for stacked frames use run\.act\(\)"):
        policy.act({"image": stacked, "speed": speed})
    with pytest.raises(ValueError, match="without 'speed'"):
        policy.act({"image": image})
    assert policy.act({"image": image, "speed": speed}) in (5, 6, 7)
    learner, spec, raw = actor("vector")
    vectors = Policy(learner, CONFIGS["vector"], spec, raw, 2)
    vectors.reset()
    with pytest.raises(ValueError, match="takes 2 observations at once, but got 4"):
        vectors.act(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match=r"with a batch axis of 2, but got float32 \[3\]"):
        vectors.act(np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match="takes finite numbers, but the observation has NaN or infinity"):
        vectors.act(np.array([[0, 0, 0, 0], [0, np.nan, 0, 0]], np.float32))
    with pytest.raises(ValueError, match=r"a bool for each of 2 environments"):
        vectors.reset([True])
    with pytest.raises(ValueError, match="num_envs is 0"):
        Policy(learner, config, spec, raw, 0)


@pytest.mark.parametrize("num_envs", [None, 2])
def test_the_outputs_of_the_last_action_can_be_read(num_envs):
    learner, spec, raw = actor("catch")
    policy = Policy(learner, CONFIGS["catch"], spec, raw, num_envs)
    policy.reset()
    with pytest.raises(ValueError, match=r"call act\(\) first"):
        _ = policy.logits
    images = np.random.default_rng(0).integers(0, 256, (num_envs or 1, *raw.space.shape), np.uint8)
    policy.act(images if num_envs else images[0])
    observation = policy.observation if num_envs else policy.observation[None]
    logits, value = learner.predict("base", observation)
    np.testing.assert_allclose(policy.logits, logits if num_envs else logits[0], rtol=1e-5)
    np.testing.assert_allclose(policy.value, value if num_envs else value[0], rtol=1e-5)
