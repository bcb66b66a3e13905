"""Environments: Atari, DeepMind Lab, Gymnasium environments with discrete actions, and the library's own games."""

from __future__ import annotations

from typing import Any

import gymnasium

GAMES = {"gunreal/Catch-v0": "gunreal.envs.catch:Catch", "gunreal/RareGoalMaze-v0": "gunreal.envs.maze:RareGoalMaze"}
_MAZES: dict[str, tuple[str, dict[str, Any]]] = {
    "gunreal/NavMazeStatic-v0": ("gunreal.envs.vizdoom_maze:NavMaze", {}),
    "gunreal/NavMazeRandomGoal-v0": ("gunreal.envs.vizdoom_maze:NavMaze", {"random_goal": True}),
    "gunreal/NavMazeRandom-v0": ("gunreal.envs.vizdoom_maze:NavMaze", {"layout": -1}),
    "gunreal/SeekAvoid-v0": ("gunreal.envs.vizdoom_maze:SeekAvoid", {}),
}

for _id, (_class, _options) in {**{name: (game, {}) for name, game in GAMES.items()}, **_MAZES}.items():
    gymnasium.register(_id, _class, order_enforce=False, disable_env_checker=True, kwargs=_options)
