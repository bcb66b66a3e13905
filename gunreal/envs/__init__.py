"""Environments: Atari, DeepMind Lab, Gymnasium environments with discrete actions, and the library's own games."""

from __future__ import annotations

import gymnasium

gymnasium.register("gunreal/Catch-v0", "gunreal.envs.catch:Catch", order_enforce=False, disable_env_checker=True)
gymnasium.register(
    "gunreal/RareGoalMaze-v0", "gunreal.envs.maze:RareGoalMaze", order_enforce=False, disable_env_checker=True
)
for _name, _class, _options in (
    ("NavMazeStatic", "NavMaze", {}),
    ("NavMazeRandomGoal", "NavMaze", {"random_goal": True}),
    ("NavMazeRandom", "NavMaze", {"layout": -1}),
    ("SeekAvoid", "SeekAvoid", {}),
):
    gymnasium.register(
        f"gunreal/{_name}-v0",
        f"gunreal.envs.vizdoom_maze:{_class}",
        order_enforce=False,
        disable_env_checker=True,
        kwargs=_options,
    )
