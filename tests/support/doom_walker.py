"""Players that see the map: what the ViZDoom environments are worth to one who knows the way."""

from __future__ import annotations

import math

import numpy as np

from gunreal.envs.mazes import MOVES, distances
from gunreal.envs.vizdoom_maze import ACTIONS

FORWARD, LEFT, RIGHT = (ACTIONS.index(name) for name in ("forward", "look left", "look right"))


def towards(env, target):
    """The action that brings the player nearer to the centre of a cell: turns first, then walks."""
    row, column, angle = env.pose
    wanted = math.degrees(math.atan2(row - target[0] - 0.5, target[1] + 0.5 - column))
    off = (wanted - angle + 180) % 360 - 180
    return FORWARD if abs(off) < 6 else LEFT if off > 0 else RIGHT


def descend(env, distance):
    """Towards the neighboring cell that is nearest by `distance`, -1 where nobody may go."""
    row, column = (int(x) for x in env.pose[:2])
    near = [(row + down, column + right) for down, right in MOVES.tolist()]
    return towards(env, min((cell for cell in near if distance[cell] >= 0), key=lambda cell: distance[cell]))


def play(env, seed, choose):
    """One episode: the rewards of its steps."""
    env.reset(seed=seed)
    rewards, over = [], False
    while not over:
        _, reward, terminated, over, _ = env.step(choose(env))
        assert not terminated
        rewards.append(reward)
    return np.array(rewards)


def to_the_goal():
    """Walks the shortest path to the goal, and takes along what lies on it."""

    def choose(env):
        return descend(env, distances(env.free, env.goal))

    return choose


def by_chance(seed=0):
    """Uniform actions."""
    rng = np.random.default_rng(seed)
    return lambda env: int(rng.integers(len(ACTIONS)))
