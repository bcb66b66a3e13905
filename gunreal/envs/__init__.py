"""Environments: Atari, any Gymnasium id with discrete actions, and the library's own two test games."""

from __future__ import annotations

import gymnasium

gymnasium.register("gunreal/Catch-v0", "gunreal.envs.catch:Catch", order_enforce=False, disable_env_checker=True)
gymnasium.register(
    "gunreal/RareGoalMaze-v0", "gunreal.envs.maze:RareGoalMaze", order_enforce=False, disable_env_checker=True
)
