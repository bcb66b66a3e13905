"""An Atari 2600 emulator: one C++ source, equal to ale-py bit by bit in the games that it claims."""

from gunreal.emulator.build import EmulatorUnavailable
from gunreal.emulator.games import UnknownGame, games
from gunreal.emulator.vector import VectorAtari

__all__ = ["EmulatorUnavailable", "UnknownGame", "VectorAtari", "games"]


def _register() -> None:
    """Puts the games into Gymnasium's registry as gunreal/Pong, gunreal/MsPacman, ..., for `gymnasium.make_vec`."""
    import gymnasium

    for game in games():
        name = "gunreal/" + "".join(part.capitalize() for part in game.split("_"))
        if name not in gymnasium.registry:
            gymnasium.register(name, vector_entry_point="gunreal.emulator.vector:VectorAtari", kwargs={"game": game})


_register()
