from __future__ import annotations

import numpy as np

from gunreal.envs.catch import Catch


def play(env, seed, policy):
    """Return and length of one episode."""
    env.reset(seed=seed)
    total, steps, done = 0.0, 0, False
    while not done:
        _, reward, done, truncated, _ = env.step(policy(env))
        assert not truncated and (reward == 0 or done)
        total, steps = total + reward, steps + 1
    return total, steps


def follow(env):
    _, ball, paddle = env.state
    return np.sign(ball - paddle) + 1


def test_following_the_ball_is_optimal():
    env = Catch()
    played = [play(env, seed, follow) for seed in range(50)]
    assert played == [(1.0, 9)] * 50


def test_standing_still_catches_the_middle_column_only():
    env = Catch()
    for seed in range(20):
        total, _ = play(env, seed, lambda e: 1)
        assert total == (1.0 if env.state[1] == 2 else -1.0)


def test_picture():
    env = Catch()
    image, _ = env.reset(seed=0)
    assert image.shape == (84, 84, 1) and image.dtype == np.uint8
    assert image.sum() == 255 * 2 * 8 * 16  # ball and paddle, 84 // 10 by 84 // 5 pixels each
    left = env.state[1] * 16
    assert (image[72:80, 32:48] == 255).all() and (image[:8, left : left + 16] == 255).all()
    image, *_ = env.step(2)
    assert (image[72:80, 48:64] == 255).all() and (image[8:16, left : left + 16] == 255).all()


def test_paddle_stays_inside():
    env = Catch()
    env.reset(seed=0)
    for action, end in ((0, 0), (2, 4)):
        for _ in range(6):
            env.step(action)
        assert env.state[2] == end
        env.reset(seed=0)


def test_with_a_delay_the_ball_is_seen_once_and_nothing_moves_until_it_falls():
    env = Catch(delay=3)
    first, _ = env.reset(seed=0)
    assert first.sum() == 255 * 2 * 8 * 16
    for _ in range(3):
        image, reward, *_ = env.step(0)
        assert env.state[2] == 2 and reward == 0
        assert image.sum() == 255 * 8 * 16  # the paddle alone
    played = [play(env, seed, follow) for seed in range(20)]
    assert played == [(1.0, 12)] * 20
