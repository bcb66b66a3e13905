"""The games' ids in Gymnasium."""

from __future__ import annotations

import gymnasium

from gunreal_emulator.games import games


def env_id(game: str) -> str:
    """Returns the id of a game, such as "gunreal/MsPacman-v5" for "ms_pacman"."""
    return f"gunreal/{game.title().replace('_', '')}-v5"


def register() -> None:
    """Registers the supported games as gunreal/Pong-v5, ..., with the settings of ALE/Pong-v5, ....

    `gymnasium.make` makes an `AtariEnv`, and `gymnasium.make_vec` an `AtariVectorEnv`.
    """
    settings = {"repeat_action_probability": 0.25, "full_action_space": False, "frameskip": 4,
                "max_num_frames_per_episode": 108_000}  # fmt: skip
    for game in games():
        if (name := env_id(game)) not in gymnasium.registry:
            gymnasium.register(
                name,
                entry_point="gunreal_emulator.env:AtariEnv",
                vector_entry_point="gunreal_emulator.vector_env:AtariVectorEnv",
                kwargs={"game": game, **settings},
            )
