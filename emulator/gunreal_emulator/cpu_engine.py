"""Runs the consoles of a `VectorAtari` on the CPU."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gunreal_emulator.build import library
from gunreal_emulator.settings import Settings

ALIGNMENT = 64  # bytes, with which other libraries take arrays without a copy


class Results(NamedTuple):
    """Results of a step of all consoles, in arrays on the device of the consoles.

    Attributes:
      frames: observations, uint8 `[n, channels, height, width]`.
      reward: float32 `[n]`.
      terminated, truncated: whether the episode has ended, bool `[n]`.
      lives: number of lives left, int32 `[n]`.
      episode_frames: number of frames since the start of the episode, int32 `[n]`.
    """

    frames: Any
    reward: Any
    terminated: Any
    truncated: Any
    lives: Any
    episode_frames: Any


class _Outputs(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in Results._fields]


def check_actions(actions: Any, n: int) -> None:
    """Raises ValueError unless an array of actions has `n` whole numbers."""
    if actions.shape != (n,) or actions.dtype.kind not in "iu":
        raise ValueError(f"the actions are {actions.dtype} of shape {actions.shape}; give {n} whole numbers")


class CpuEngine:
    """Consoles of the C++ library, with the state in its memory.

    Args:
      games: games with equal settings.
      of: index in `games` of each console's game, ascending.
      num_threads: number of threads that step the consoles of each game. With 0, `start` itself steps them.
    """

    def __init__(self, games: Sequence[Settings], of: np.ndarray, num_threads: int):
        self._library, self._games, self._of = library(), games, of
        self._starts = np.searchsorted(of, range(len(games) + 1))
        self._waiting: tuple | None = None
        self._frames: np.ndarray | None = None  # of the last step
        self._process = os.getpid() if num_threads else 0  # the only one that has the threads
        most = max(len(game.actions) for game in games)
        self._actions = [np.pad(game.actions, (0, most - len(game.actions))) for game in games]  # NOOP, as on a GPU
        self._handles = [
            self._library.atari_vector_new(game.loaded.handle, ctypes.byref(game.protocol), game.palette.ctypes.data,
                                           int(n), num_threads)
            for game, n in zip(games, np.diff(self._starts), strict=True)
        ]  # fmt: skip
        # The games must exist as long as the consoles. At the end of the process, its memory is freed anyway.
        self._finalizer = weakref.finalize(self, _free, self._library, self._handles, self._process, games)
        self._finalizer.atexit = False
        if not all(self._handles):
            self.close()
            raise MemoryError(f"there is too little memory for {len(of)} consoles; use fewer consoles or threads")

    def start(self, actions: np.ndarray | None, reset: np.ndarray | None, seeds: np.ndarray | None) -> None:
        """Starts a step, which `finish` completes.

        Args:
          actions: agent's actions, integers `[n]`. Without actions, only the consoles to reset change. The frames of
            the others are those of the last step, or their last pictures after `load`.
          reset: whether to start a new episode, uint8 `[n]`, contiguous, or None.
          seeds: of the new episodes, int64 `[n]`, contiguous, or None.

        Raises:
          ValueError: an action is not in the action space.
          RuntimeError: this process was forked, and has none of the threads.
        """
        n = len(self._of)
        if self._process not in (0, os.getpid()):
            raise RuntimeError("threads do not survive a fork; create the environment in this process")
        if actions is not None:
            actions, most = np.asarray(actions), len(self._actions[0])
            check_actions(actions, n)
            if not 0 <= actions.min() <= actions.max() < most:
                raise ValueError(f"the actions are {actions}, but must be whole numbers from 0 to {most - 1}")
            parts = np.split(actions, self._starts[1:-1])
            actions = np.concatenate([of[part] for of, part in zip(self._actions, parts, strict=True)])
        results = Results(
            aligned((n, *self._games[0].shape)), np.empty(n, np.float32), np.empty(n, bool), np.empty(n, bool),
            np.empty(n, np.int32), np.empty(n, np.int32),
        )  # fmt: skip
        self._waiting = results, actions, reset, seeds  # kept alive while the consoles play
        for handle, first in zip(self._handles, self._starts, strict=False):
            inputs = [None if a is None else a[first:].ctypes.data for a in (actions, reset, seeds)]
            addresses: list[int] = [a[first:].ctypes.data for a in results]
            self._library.atari_vector_send(handle, *inputs, ctypes.byref(_Outputs(*addresses)))

    def wait(self) -> None:
        """Waits until no console plays."""
        for handle in self._handles:
            self._library.atari_vector_recv(handle)

    def finish(self) -> Results:
        """Returns the results of the last step."""
        self.wait()
        assert self._waiting is not None
        results, actions, reset, _ = self._waiting
        if actions is None and self._frames is not None:
            others = reset == 0
            results.frames[others] = self._frames[others]
        self._frames = results.frames
        return results

    def players(self) -> np.ndarray:
        """Returns the states without pictures, uint8 `[n, bytes]`."""
        return np.stack([np.frombuffer(bytes(self._part(k)[0]), np.uint8) for k in range(len(self._of))])

    def pictures(self, k: int) -> np.ndarray:
        """Returns both pictures of a console, uint8 `[2, height, 160]`."""
        return np.frombuffer(bytes(self._part(k)[1]), np.uint8).reshape(2, -1, 160)

    def load(self, players: np.ndarray, pictures: Sequence[np.ndarray]) -> None:
        """Sets the states to those of `players` and `pictures`."""
        self._frames = None
        for k, values in enumerate(zip(players, pictures, strict=True)):
            for memory, value in zip(self._part(k), values, strict=True):
                ctypes.memmove(memory, np.ascontiguousarray(value).ctypes.data, len(memory))

    def close(self) -> None:
        """Frees the consoles."""
        self._finalizer()
        self._handles = []

    def _part(self, k: int) -> tuple[ctypes.Array, ctypes.Array]:
        """Returns the memory of the state and of the pictures of console `k`."""
        lib, handle, k = self._library, self._handles[self._of[k]], k - int(self._starts[self._of[k]])
        sizes = lib.atari_player_size(), lib.atari_vector_screens_size(handle)
        addresses = lib.atari_vector_player(handle, k), lib.atari_vector_screens(handle, k)
        first, second = [(ctypes.c_char * n).from_address(at) for n, at in zip(sizes, addresses, strict=True)]
        return first, second


def _free(library: ctypes.CDLL, handles: list, process: int, games: Sequence[Settings]) -> None:
    if process in (0, os.getpid()):  # otherwise it would wait for threads that do not exist
        for handle in filter(None, handles):
            library.atari_vector_free(handle)


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Returns an uninitialized uint8 array whose memory begins at a multiple of `ALIGNMENT`."""
    size = int(np.prod(shape))
    memory = np.empty(size + ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % ALIGNMENT
    return memory[offset : offset + size].reshape(shape)
