"""Consoles that step independently on the CPU, with the interface of ale-py's `ALEVectorInterface`."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike

from gunreal_emulator.build import library
from gunreal_emulator.cpu_engine import aligned
from gunreal_emulator.native import Native, alone
from gunreal_emulator.settings import Protocol, Settings

_AUTORESET = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)
_SEEDS = 2**32  # number of seeds


class PoolSettings(ctypes.Structure):
    """The structure `PoolSettings` of the C++ library."""

    _fields_ = [("protocol", Protocol)] + [(name, ctypes.c_int32) for name in (
        "noop_max", "fire", "life_loss", "clip", "autoreset", "stack", "batch", "threads", "first_core")]  # fmt: skip


_ARRAYS = {"frames": np.uint8, "last": np.uint8, "reward": np.int32, "terminated": bool, "truncated": bool,
           "restarted": bool, "over": bool, "env_id": np.int32, "lives": np.int32, "frame_number": np.int32,
           "episode_frame_number": np.int32}  # fmt: skip
_INFO = ("env_id", "lives", "frame_number", "episode_frame_number")


class _Outputs(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in _ARRAYS]


class Pool(Native):
    """Consoles of one game that step independently, in batches of those that finish first.

    Args:
      game: the game, with the settings of its steps.
      settings: further settings. `threads` must be at least 1.
      num_envs: number of consoles.

    Raises:
      MemoryError: there is too little memory for so many consoles or threads.
    """

    def __init__(self, game: Settings, settings: PoolSettings, num_envs: int):
        self._library, self._game, self._settings, self._n = library(), game, settings, num_envs
        _, height, width = game.shape
        stacked = (settings.stack, height, width)
        self._shape = stacked if settings.protocol.channels == 1 else (*stacked, 3)
        handle = self._library.atari_pool_new(
            game.loaded.handle, ctypes.byref(settings), game.palette.ctypes.data, num_envs
        )
        if not handle:
            raise MemoryError(f"there is too little memory for {num_envs} consoles; use fewer consoles or threads")
        self._handle, self._process = handle, os.getpid()
        self._lock = threading.Lock()
        self._seeded = np.zeros(num_envs, bool)
        self._over = np.zeros(num_envs, bool)
        self._ids: np.ndarray | None = None  # of the last batch, until its actions are sent
        self._reset = False
        self._free = weakref.finalize(self, _free, self._library.atari_pool_free, handle, game, self._process)
        self._free.atexit = False

    def get_action_set(self) -> list:
        """Returns the actions of the action space, as ale-py's `Action`."""
        from ale_py import Action

        return [Action(action) for action in self._game.actions.tolist()]

    def get_num_envs(self) -> int:
        """Returns the number of consoles."""
        return self._n

    def get_observation_shape(self) -> tuple[int, ...]:
        """Returns the shape of one console's observation."""
        return self._shape

    @alone
    def reset(self, env_ids: ArrayLike, seeds: ArrayLike) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Starts an episode in some consoles and receives a batch. The first reset must reset all consoles.

        A seed starts the console's random numbers, and -1 continues them. Those of the first reset are drawn at random.

        Raises:
          ValueError, IndexError, RuntimeError: these consoles can't be reset, or a seed is invalid.
        """
        self._check()
        ids, given = np.array(env_ids, np.int32), np.array(seeds, np.int64)
        if ids.shape != given.shape:
            raise ValueError(f"got {len(given)} seeds for {len(ids)} consoles; give one seed for each")
        if not ((ids >= 0) & (ids < self._n)).all():
            raise IndexError(f"an env_id is out of range; use 0 to {self._n - 1}")
        if len(np.unique(ids)) < len(ids):
            raise ValueError("there is a duplicate env_id; name each console once")
        if not ((given >= -1) & (given < _SEEDS)).all():
            raise ValueError(f"the seeds are {given}, but must be from 0 to {_SEEDS - 1}, or -1")
        if len(ids) < self._n and not self._reset:
            raise RuntimeError(f"the first reset() must reset every console, not {len(ids)} of {self._n}")
        if len(ids) < self._n and self._settings.batch < self._n:
            raise ValueError("some consoles can't be reset alone if batch_size < num_envs; reset all of them")
        if len(ids) < self._n and self._ids is None:
            raise RuntimeError("some consoles can't be reset while a step is not complete; call recv() first")
        fresh = (given < 0) & ~self._seeded[ids]
        given[fresh] = np.random.default_rng().integers(_SEEDS, size=int(fresh.sum()))
        self._library.atari_pool_reset(self._handle, ids.ctypes.data, given.ctypes.data, len(ids))
        others = np.setdiff1d(np.arange(self._n, dtype=np.int32), ids)
        self._library.atari_pool_report(self._handle, others.ctypes.data, len(others))
        self._seeded[ids], self._reset = True, True
        self._ids = None
        observation, _, _, _, info = self._received()
        return observation, {name: info[name] for name in _INFO}

    @alone
    def send(self, actions: np.ndarray) -> None:
        """Starts a step of the consoles of the last batch.

        Args:
          actions: whole numbers of the action space, `[batch_size]`.

        Raises:
          ValueError: an action is not in the action space.
          RuntimeError: there is no batch, or an episode is over and automatic resets are disabled.
        """
        self._check()
        if not self._reset:
            raise RuntimeError("send() was called before reset(); call reset() first")
        if self._ids is None:
            raise RuntimeError("the consoles of the last batch already play; call recv() first")
        number = len(self._game.actions)
        if not 0 <= actions.min() <= actions.max() < number:
            raise ValueError(f"the actions are {actions}, but must be whole numbers from 0 to {number - 1}")
        if _AUTORESET[self._settings.autoreset] is AutoresetMode.DISABLED and (over := self._over[self._ids]).any():
            raise RuntimeError(f"the episodes of {self._ids[over]} are over; reset them with the option reset_mask")
        ids, self._ids = self._ids, None
        played = self._game.actions[actions]
        self._library.atari_pool_send(self._handle, ids.ctypes.data, played.ctypes.data, len(ids))

    @alone
    def recv(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Waits for a batch, and returns its observations, rewards, terminations, truncations and info.

        Raises RuntimeError if it would wait forever.
        """
        self._check()
        if not self._reset:
            raise RuntimeError("recv() was called before reset(); call reset() first")
        if self._ids is not None:
            raise RuntimeError("recv() was called without send(); call send() first")
        return self._received()

    @alone
    def close(self) -> None:
        """Frees the consoles and ends their threads."""
        self._free()

    def _received(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        n = self._settings.batch
        frames = {"frames": aligned((n, *self._shape))}
        if _AUTORESET[self._settings.autoreset] is AutoresetMode.SAME_STEP:
            frames["last"] = aligned((n, *self._shape))
        arrays = {name: np.empty(n, dtype) for name, dtype in _ARRAYS.items() if dtype is not np.uint8} | frames
        addresses = {name: array.ctypes.data for name, array in arrays.items()}
        arrays["env_id"][:] = -1
        try:
            self._library.atari_pool_recv(self._handle, ctypes.byref(_Outputs(**addresses)))
        finally:  # Ctrl-C is an exception after the call, which has taken the batch
            if arrays["env_id"][0] >= 0:
                self._ids = arrays["env_id"].copy()
                self._over[self._ids] = arrays["over"]
        info = {name: arrays[name] for name in _INFO}
        if (restarted := arrays["restarted"]).any():
            arrays["last"][~restarted] = 0
            info["final_obs"] = arrays["last"]
        return arrays["frames"], arrays["reward"], arrays["terminated"], arrays["truncated"], info

    def _check(self) -> None:
        if not self._free.alive:
            raise RuntimeError("the environment is closed; create a new one")
        if self._process != os.getpid():
            raise RuntimeError("threads do not survive a fork; create the environment in this process")


def _free(free: Any, handle: int, game: Settings, process: int) -> None:
    """Frees the consoles, and then the game. A forked process has none of the threads that this would wait for."""
    if process == os.getpid():
        free(handle)


def autoreset_number(mode: AutoresetMode | str) -> int:
    """Returns the number of a mode in the C++ library. Raises ValueError if there is no such mode."""
    return _AUTORESET.index(AutoresetMode(mode))
