"""Agents on the device: what they write down is what their environments did."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax")
import jax  # noqa: E402
import scripted_functional  # noqa: E402
from device_runs import SCRIPT, KnownLearner, configure, interface, make_acting, value_of  # noqa: E402

from gunreal.config.objective import load_objective  # noqa: E402
from gunreal.device.acting import Acting  # noqa: E402
from gunreal.device.environment import check_environment, frames  # noqa: E402
from gunreal.experience.replay import FIRST, RESET, TERMINATED, TRUNCATED  # noqa: E402

STEPS = 24
WEIGHTS = (np.float32(0),)


def play(config, state=0, acting=None):
    acting = acting or make_acting(config, state)
    start = jax.jit(acting.start)()
    end, block, scores = jax.jit(acting.play, static_argnums=2)(WEIGHTS, start, STEPS)
    return start, end, jax.tree.map(np.asarray, block), np.asarray(scores)


@pytest.fixture(scope="module")
def played():
    return play(configure())


def test_rows_follow_the_script(played):
    """Without a spread, all begin together."""
    start, _, rows, scores = played
    words = SCRIPT.split()
    for agent, seed in enumerate(np.asarray(start.env["seed"])):
        word, t, total = words[seed % len(words)], 0, 0.0
        for row in range(STEPS):
            final = word[-1] != "~" and t == len(word)
            assert rows["frame"][row, agent].tolist()[:2] == [seed % 997, t]
            assert rows["age"][row, agent] == t
            gained = 0.0 if final else 0.25 * (t - 2) + 0.5 * rows["action"][row, agent]
            assert rows["reward"][row, agent] == pytest.approx(gained)
            total += gained
            ends = not final and word[-1] != "~" and t + 1 == len(word)
            flags = FIRST * (t == 0) + RESET * final + (TERMINATED if word[-1] == "T" else TRUNCATED) * ends
            assert rows["flags"][row, agent] == flags
            assert scores[row, agent] == pytest.approx(total) if ends else np.isnan(scores[row, agent])
            t, total = (0, 0.0) if final else (t + 1, total)


def test_actions_are_drawn_from_the_policy(played):
    _, _, rows, _ = played
    value = value_of(rows["frame"].reshape(-1, 3)).reshape(rows["value"].shape)
    np.testing.assert_allclose(rows["value"], value, rtol=1e-5)
    logits = np.stack([np.sin(value), np.cos(value), np.zeros_like(value)], -1)
    log_pi = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    taken = np.take_along_axis(log_pi, rows["action"][..., None], -1)[..., 0]
    np.testing.assert_allclose(rows["log_mu"], taken, rtol=1e-4, atol=1e-5)
    often = np.bincount(rows["action"].ravel(), minlength=3) / rows["action"].size
    np.testing.assert_allclose(often, np.exp(log_pi).mean((0, 1)), atol=0.15)


def test_the_seed_decides_everything(played):
    again, other = play(configure()), play(configure(seed=2))
    np.testing.assert_array_equal(again[2]["action"], played[2]["action"])
    assert (np.asarray(other[0].env["seed"]) != np.asarray(played[0].env["seed"])).all()


def test_a_recurrent_network_gets_its_past():
    _, end, rows, _ = play(configure(), state=2)
    np.testing.assert_array_equal(rows["state"][:, 0, 0], np.arange(STEPS))  # the known network adds 1 in every step
    new = rows["age"][-1] + 1 == end.age
    expected = np.where(new, rows["action"][-1], -1)
    np.testing.assert_array_equal(end.past.last_action, expected)
    np.testing.assert_allclose(end.past.last_reward, np.where(new, np.clip(rows["reward"][-1], -0.6, 0.6), 0))


def test_start_states_are_spread_over_the_episodes():
    config = configure(agents=400, env_args={"script": "---------T"}, device_spread=30)
    start, _, rows, scores = play(config)
    ages = np.asarray(start.stack)[:, 1]
    assert set(ages.tolist()) == set(range(11))
    counts = np.bincount(ages.astype(int), minlength=11)
    assert counts.max() < 3 * counts.min()
    assert (rows["flags"][0] & FIRST).all() and (np.asarray(start.age) == 0).all()
    ended = (rows["flags"] & TERMINATED != 0).argmax(0)  # the first end of each agent
    # Scores count the rewards of the random actions, which the rows do not contain.
    agents, age = np.arange(400), np.where(ages == 10, 0, ages)
    gained = np.cumsum(rows["reward"], 0)[ended, agents]
    before = [0.25 * sum(t - 2 for t in range(int(steps))) for steps in age]
    actions = (scores[ended, agents] - gained - before) / 0.5
    known = ages < 9  # the first end of the others is that of their second episode
    np.testing.assert_allclose(actions[known], actions[known].round(), atol=1e-4)
    assert (actions[known] >= -1e-4).all() and (actions[known] <= 2 * age[known] + 1e-4).all()
    assert abs((actions - age)[known].mean()) < 0.3


def test_rewards_and_flags_may_be_whole_numbers():
    config = configure(env_args={"script": "---T -t"}, device_spread=3)
    env, spec = scripted_functional.make("---T -t"), interface(config)
    original = env.step

    def step(state, actions):
        state, seen, reward, *ends = original(state, actions)
        return state, seen, (4 * reward).astype("int32"), *(end.astype("int32") for end in ends)

    env.step = step
    check_environment(config, env, config.agents)
    convert, predict = frames(config, spec, env.observation_space), KnownLearner(spec).functional_predict
    acting = Acting(config, spec, env, convert, load_objective(config), predict, step)
    _, _, rows, scores = play(config, acting=acting)
    assert rows["reward"].dtype == np.float32 and (rows["reward"] == rows["reward"].round()).all()
    flags = rows["flags"]
    ended = flags & (TERMINATED | TRUNCATED) != 0
    np.testing.assert_array_equal(np.isfinite(scores), ended)
    assert (flags[1:] & RESET != 0)[ended[:-1]].all() and ended.any()
