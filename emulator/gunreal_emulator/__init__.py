"""An Atari 2600 emulator in C++, which behaves exactly like ale-py in the games that it supports."""

from gunreal.emulator.build import EmulatorUnavailable
from gunreal.emulator.env import AtariEnv
from gunreal.emulator.games import UnknownGame, games
from gunreal.emulator.registration import register
from gunreal.emulator.vector import VectorAtari
from gunreal.emulator.vector_env import AtariVectorEnv

__all__ = ["AtariEnv", "AtariVectorEnv", "EmulatorUnavailable", "UnknownGame", "VectorAtari", "games"]

register()
