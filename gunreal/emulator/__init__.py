"""An Atari 2600 emulator in C++, which behaves exactly like ale-py in the games that it supports."""

from gunreal.emulator.build import EmulatorUnavailable
from gunreal.emulator.games import UnknownGame, games
from gunreal.emulator.vector import VectorAtari
from gunreal.emulator.vector_env import AtariVectorEnv

__all__ = ["AtariVectorEnv", "EmulatorUnavailable", "UnknownGame", "VectorAtari", "games"]


def _register() -> None:
    """Registers the games as gunreal/Pong, gunreal/MsPacman, ..., for `gymnasium.make_vec`."""
    import gymnasium

    for game in games():
        name = "gunreal/" + "".join(part.capitalize() for part in game.split("_"))
        if name not in gymnasium.registry:
            gymnasium.register(name, vector_entry_point="gunreal.emulator.vector:VectorAtari", kwargs={"game": game})


_register()
