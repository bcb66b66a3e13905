"""Environments with a known course, and one that fails on demand; agent processes import them as `scripted_env:Id`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

SCRIPTED, FAILING = "scripted_env:Scripted-v0", "scripted_env:Failing-v0"
SLOW, POISONED = "scripted_env:Slow-v0", "scripted_env:Poisoned-v0"
ACTIONS = "SCRIPTED_ENV_ACTIONS"  # environment variable: the number of actions on a machine with another version of it


def reward(t: int, action: int) -> float:
    """Raw reward of an episode's step `t`; some are beyond a clip of 1."""
    return 0.25 * (t - 2) + 0.5 * action


class Scripted(gymnasium.Env):
    """Episodes in words: "---T" terminates after four steps, "-t" is truncated after two, "~" never ends.

    A reset with seed s begins word `s % number of words`. Observation: float32 `[s % 997, t, last action or -1]`; its
    `info` has a "depth" of -t. With `log`, closing appends a line to that file. A step takes `pause` seconds.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(int(os.environ.get(ACTIONS, 3)))

    def __init__(self, script: str = "---T", log: str = "", pause: float = 0.0):
        self._words, self._log, self._pause = script.split(), log, pause

    def reset(self, *, seed=None, options=None):
        self._word, self._tag, self._t = self._words[seed % len(self._words)], seed % 997, 0
        return self._observe(-1)

    def step(self, action):
        time.sleep(self._pause)
        gained = reward(self._t, action)
        last = self._word[-1] != "~" and self._t == len(self._word) - 1
        self._t += 1
        observation, info = self._observe(action)
        return observation, gained, last and self._word[-1] == "T", last and self._word[-1] == "t", info

    def _observe(self, action):
        return np.array([self._tag, self._t, action], np.float32), {"depth": np.float32(-self._t)}

    def close(self):
        if self._log:
            with open(self._log, "a") as file:
                file.write("closed\n")


class Numbered(gymnasium.Env):
    """It observes one of many numbers, as its `states` are numbered."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, states: int):
        self.observation_space = gymnasium.spaces.Discrete(states)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, 0.0, False, False, {}


class Failing(Scripted):
    """An endless episode that fails on its step `at` (0: when it is reset; -1: when an agent process opens it).

    `how` is "raise", "exit", "sleep", "spin" (a loop that never ends), "kill" (the process dies as of a segmentation
    fault), "child" (it starts a process and then spins) or "orphan" (it starts a process and then dies), or several,
    "raise,spin", each for one failure. Only the first `times` failures happen; they are counted in the folder `marks`.
    Where `how` is "leave", it starts a process when it is opened, and closing it does not end that.
    """

    def __init__(self, how: str, at: int, times: int, marks: str):
        super().__init__("~")
        self._how, self._at, self._times, self._marks = how.split(","), at, times, Path(marks)
        self._count = 0
        if "gunreal.acting.process" in sys.modules:  # one is also opened apart, to see what it looks like
            self._fail_if(at == -1)

    def reset(self, *, seed=None, options=None):
        self._fail_if(self._at == 0)
        return super().reset(seed=seed)

    def step(self, action):
        self._count += 1
        self._fail_if(self._count == self._at)
        return super().step(action)

    def _fail_if(self, due: bool) -> None:
        if not due:
            return
        for number in range(self._times):
            try:
                (self._marks / str(number)).touch(exist_ok=False)
            except FileExistsError:
                continue
            self._fail(self._how[number % len(self._how)])

    def _fail(self, how: str) -> None:
        if how == "raise":
            raise RuntimeError("the emulator is on fire")
        if how == "exit":
            sys.exit(2)
        if how == "file":
            Path(tempfile.gettempdir(), "left-behind").touch()
        if how in ("file", "kill"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if how == "sleep":
            time.sleep(1e6)
        if how in ("child", "orphan", "leave"):
            child = subprocess.Popen(["sleep", "1000"])
            (self._marks / "new").write_text(str(child.pid))
            (self._marks / "new").rename(self._marks / "child")
        if how == "leave":
            return
        if how == "orphan":
            os.kill(os.getpid(), signal.SIGSEGV)
        while True:
            pass


class Slow(CartPoleEnv):
    """CartPole that leaves the cores to other tests while a run waits for what happens to it."""

    def step(self, action):
        time.sleep(0.01)
        return super().step(action)


class Poisoned(Slow):
    """CartPole. One that finds a file "poison" in the folder `marks` takes it, and observes too large numbers.

    They are finite, because others would end its process, but their squares are not.
    """

    def __init__(self, marks: str):
        super().__init__()
        self._marks, self._left = Path(marks), 0

    def step(self, action):
        observation, gained, *rest = super().step(action)
        try:
            (self._marks / "poison").rename(self._marks / "taken")
            self._left = 200
        except FileNotFoundError:
            self._left -= 1
        return np.full_like(observation, 1e30) if self._left > 0 else observation, gained, *rest


class Noise(gymnasium.Env):
    """Random pictures in color, random rewards, actions 5 to 7, and episodes of random lengths."""

    observation_space = spaces.Dict({"image": spaces.Box(0, 255, (30, 40, 3), np.uint8), "speed": spaces.Box(-1, 1)})
    action_space = spaces.Discrete(3, start=5)

    def _observe(self):
        image = self.np_random.integers(0, 256, (30, 40, 3), np.uint8)
        return {"image": image, "speed": self.np_random.normal(size=1).astype(np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        assert 5 <= action <= 7
        ends = self.np_random.random(2) < 0.05
        return self._observe(), float(self.np_random.normal(0, 3)), bool(ends[0]), bool(ends[1]), {}


class Walls(gymnasium.Env):
    """A wall at one of three distances, each with a stripe at another place; an episode has four steps."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (84, 84, 1), np.uint8),
            "depth": spaces.Box(0, 255, (84, 84), np.uint8),
        }
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        self.kind = np.random.default_rng(seed).integers(3)
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        return self.observe(), 0.0, False, self.steps == 4, {}

    def observe(self):
        image = np.zeros((84, 84, 1), np.uint8)
        image[:, self.kind * 28 : (self.kind + 1) * 28] = 255
        return {"image": image, "depth": np.full((84, 84), (1, 40, 240)[self.kind], np.uint8)}


class Memory(gymnasium.Env):
    """Observes bytes of no image, as Atari's RAM."""

    observation_space = spaces.Box(0, 255, (3,), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        return np.array([0, 128, 255], np.uint8), {}

    def step(self, action):
        return np.array([0, 128, 255], np.uint8), 0.0, False, False, {}


gymnasium.register("Slow-v0", Slow, max_episode_steps=500)
gymnasium.register("Poisoned-v0", Poisoned, max_episode_steps=500)
gymnasium.register("Scripted-v0", Scripted)
gymnasium.register("Failing-v0", Failing)
gymnasium.register("Noise-v0", Noise)
gymnasium.register("Walls-v0", Walls)
gymnasium.register("Memory-v0", Memory)
