"""Environments that do to their process what they should not; commands and other processes import them by name."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import warnings

import gymnasium
import numpy as np
from gymnasium import spaces


def loaded(_):
    """The modules of a process."""
    return list(sys.modules)


class Plain(gymnasium.Env):
    """Episodes of three steps."""

    observation_space = spaces.Box(-1, 1, (3,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.left = 3
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(3, np.float32), 1.0, self.left == 0, False, {}


class Meddling(Plain):
    """Changes everything that belongs to its process."""

    def __init__(self):
        os.chdir(tempfile.gettempdir())
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        np.random.seed(0)
        print("a line of the environment")
        sys.stdout = None


class Dying(Plain):
    """Ends its process as `how` says: by the number of a signal, or with an exit code."""

    def __init__(self, how):
        self.how = how

    def reset(self, *, seed=None, options=None):
        if isinstance(self.how, str):
            os.kill(os.getpid(), getattr(signal, self.how))
        os._exit(self.how)


class Unclosable(Plain):
    """Raises when it is closed."""

    def close(self):
        raise RuntimeError("already closed")


class Warning(Unclosable):
    """Prints and warns."""

    action_space = spaces.Discrete(3)

    def __init__(self):
        print("a line of the environment")

    def step(self, action):
        warnings.warn("a warning\nof an environment", stacklevel=1)
        logging.getLogger("game").warning("a line for a log")
        return super().step(action)


class Single(Plain):
    """A second one in the same process is refused, as by stable-retro."""

    opened = 0

    def __init__(self):
        if Single.opened:
            raise RuntimeError("Cannot create multiple emulator instances per process")
        Single.opened += 1

    def close(self):
        Single.opened -= 1


class Breaking(Plain):
    """Raises in its step `at`, counted over all episodes."""

    def __init__(self, at):
        self.at = at

    def step(self, action):
        self.at -= 1
        if self.at == 0:
            raise RuntimeError("the emulator is on fire")
        return super().step(action)


class Observing(Plain):
    """Observes `value`, or one entry of a `Dict` less than its space has."""

    def __init__(self, kind, value):
        self.observation_space = {
            "discrete": spaces.Discrete(5),
            "multi": spaces.MultiDiscrete([3, 4]),
            "binary": spaces.MultiBinary(2),
            "dict": spaces.Dict({"a": spaces.Discrete(5), "b": spaces.Box(0, 1, (2,))}),
            "images": spaces.Dict({"rgb": spaces.Box(0, 255, (30, 30, 3), np.uint8), "b": spaces.Discrete(2)}),
        }[kind]
        self.value = {"a": value} if kind == "dict" else {"b": value} if kind == "images" else value
        if kind in ("multi", "binary"):
            self.value = np.array(value)

    def reset(self, *, seed=None, options=None):
        return self.value, {}
