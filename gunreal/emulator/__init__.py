"""An Atari 2600 emulator: one C++ source, equal to ale-py bit by bit in the games that it claims."""

from gunreal.emulator.build import EmulatorUnavailable
from gunreal.emulator.games import UnknownGame, games

__all__ = ["EmulatorUnavailable", "UnknownGame", "games"]
