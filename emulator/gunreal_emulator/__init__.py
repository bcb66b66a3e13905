"""An Atari 2600 emulator in C++, which behaves exactly like ale-py in the games that it supports."""

from gunreal_emulator.build import EmulatorUnavailable
from gunreal_emulator.env import AtariEnv
from gunreal_emulator.games import UnknownGame, games
from gunreal_emulator.registration import register
from gunreal_emulator.vector import VectorAtari
from gunreal_emulator.vector_env import AtariVectorEnv

__all__ = ["AtariEnv", "AtariVectorEnv", "EmulatorUnavailable", "UnknownGame", "VectorAtari", "games"]

register()
