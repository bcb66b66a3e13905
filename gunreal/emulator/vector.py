"""`VectorAtari`, a vector environment of Atari games with Gymnasium's interface."""

from __future__ import annotations

import ctypes
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from gunreal.emulator.build import library
from gunreal.emulator.console import WIDTH
from gunreal.emulator.settings import rgb_palette, settings


class _Outputs(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("frames", "reward", "terminated", "truncated", "lives",
                                                     "episode_frames", "ram")]  # fmt: skip


class VectorAtari(gymnasium.vector.VectorEnv):
    """A vector environment of `num_envs` consoles that play one game.

    Observations are uint8 `[num_envs, 1, height, width]` (gray) or `[num_envs, 3, height, width]` (RGB). They are the
    maximum of the last two frames of a step, resized by area. Rewards are float32 and not clipped. The step after the
    end of an episode resets the console and has reward 0 (`AutoresetMode.NEXT_STEP`). `info` contains `lives` and
    `episode_frame_number`, int32 `[num_envs]`.

    Args:
      game: name of the game, such as "pong", "Pong" or "ALE/Pong-v5".
      num_envs: number of consoles.
      device: device of the emulator. Only "cpu" is supported.
      protocol: "v5" (sticky actions) or "deterministic" (up to 30 no-ops).
      num_threads: number of threads that step the consoles. With 0, `send` itself steps them.
      frame_skip: number of frames per step.
      repeat_action_probability: probability that a frame repeats the last action. None uses that of the protocol.
      noop_max: an episode starts with 1 to `noop_max` no-op frames, or with none if it is 0. None uses the protocol's
        number.
      size: (height, width) of an observation. None keeps the size of the screen.
      grayscale: whether observations are gray instead of RGB.
      maximum: whether an observation is the maximum of the last two frames instead of the last frame.
      full_action_space: whether to use all 18 actions instead of those that have an effect in the game.
      mode: number of the game's mode in ale-py. None plays the first mode.
      difficulty: difficulty switches. Bit 0 sets the left switch to A, and bit 1 the right one.
      max_num_frames_per_episode: number of frames after which an episode is truncated. 0 disables truncation.
      render_mode: None or "rgb_array".

    Raises:
      UnknownGame: the game or its mode does not exist or is not supported. The message is one line that names the fix.
      EmulatorUnavailable: the emulator can't be compiled. The message is one line that names the fix.
      ValueError: another argument is invalid.
    """

    def __init__(
        self,
        game: str,
        num_envs: int = 1,
        device: str = "cpu",
        *,
        protocol: str = "v5",
        num_threads: int = 0,
        frame_skip: int = 4,
        repeat_action_probability: float | None = None,
        noop_max: int | None = None,
        size: tuple[int, int] | None = (84, 84),
        grayscale: bool = True,
        maximum: bool = True,
        full_action_space: bool = False,
        mode: int | None = None,
        difficulty: int = 0,
        max_num_frames_per_episode: int = 108_000,
        render_mode: str | None = None,
    ):
        if device != "cpu":
            raise ValueError(f"device is {device!r}, but must be 'cpu'")
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}, but must be at least 1")
        loaded = settings(
            game, protocol=protocol, frame_skip=frame_skip, repeat_action_probability=repeat_action_probability,
            noop_max=noop_max, size=size, grayscale=grayscale, maximum=maximum, full_action_space=full_action_space,
            mode=mode, difficulty=difficulty, max_num_frames_per_episode=max_num_frames_per_episode,
        )  # fmt: skip
        self._loaded, self._actions, self._shape = loaded.loaded, loaded.actions, loaded.shape
        self.game = self._loaded.game
        self._library = library()
        self._handle = self._library.atari_vector_new(
            self._loaded.handle, ctypes.byref(loaded.protocol), loaded.palette.ctypes.data, num_envs, num_threads, 1
        )
        self.num_envs, self.render_mode = num_envs, render_mode
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": ["rgb_array"], "render_fps": 60}
        self.single_observation_space = gymnasium.spaces.Box(0, 255, self._shape, np.uint8)
        self.single_action_space = gymnasium.spaces.Discrete(len(self._actions))
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self._waiting: tuple | None = None

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict]:
        """Starts an episode in each console, or only where `options["reset_mask"]`, bool `[num_envs]`, is set."""
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        seeds = np.asarray(seed) if isinstance(seed, list | np.ndarray) else np.arange(self.num_envs) + seed
        if len(seeds) != self.num_envs:
            raise ValueError(f"got {len(seeds)} seeds for {self.num_envs} consoles; give one seed, or one for each")
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        if not mask.all() and self._waiting is None and not hasattr(self, "_last"):
            raise ValueError("the first reset must reset all consoles; leave reset_mask out")
        self._start(None, np.asarray(mask, np.uint8), np.asarray(seeds, np.int64))
        frames, _, _, _, info = self.recv()
        return frames, info

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Emulates `frame_skip` frames in each console, or resets it if its last step ended an episode."""
        self.send(actions)
        return self.recv()

    def send(self, actions: np.ndarray) -> None:
        """Starts a step, which `recv` completes."""
        if not hasattr(self, "_last"):
            raise RuntimeError("the environment has not been reset; call reset() first")
        self._start(np.ascontiguousarray(self._actions[np.asarray(actions)]), None, None)

    def recv(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Completes a step and returns observation, reward, terminated, truncated and info."""
        if self._waiting is None:
            raise RuntimeError("recv() was called without send(); call send() first")
        self._library.atari_vector_recv(self._handle)
        frames, reward, terminated, truncated, lives, episode_frames = self._waiting[0]
        self._waiting, self._last = None, frames
        return frames, reward, terminated, truncated, {"lives": lives, "episode_frame_number": episode_frames}

    def render(self) -> tuple[np.ndarray, ...]:
        """Returns the screens in RGB, uint8 `[height, 160, 3]` each."""
        palette = rgb_palette(self.game.pal)
        return tuple(palette[self.screen(k)] for k in range(self.num_envs))

    def screen(self, k: int) -> np.ndarray:
        """Returns the last drawn frame of console `k` as palette indices, uint8 `[height, 160]`."""
        n = self._library.atari_vector_screens_size(self._handle) // 2
        address = self._library.atari_vector_screens(self._handle, k) + n * self._library.atari_vector_buffer(
            self._handle, k
        )
        return np.ctypeslib.as_array((ctypes.c_uint8 * n).from_address(address)).reshape(-1, WIDTH).copy()

    def ram(self) -> np.ndarray:
        """Returns the memory of each console, uint8 `[num_envs, 128]`."""
        out = np.empty((self.num_envs, 128), np.uint8)
        for k in range(self.num_envs):
            address = self._library.atari_vector_ram(self._handle, k)
            out[k] = np.ctypeslib.as_array((ctypes.c_uint8 * 128).from_address(address))
        return out

    def save(self) -> list[bytes]:
        """Returns the states of all consoles, including screens and random generators, for `restore`."""
        return [b"".join(bytes(part) for part in self._parts(k)) for k in range(self.num_envs)]

    def restore(self, states: list[bytes]) -> None:
        """Restores states of `save`."""
        for k, state in enumerate(states):
            offset = 0
            for part in self._parts(k):
                ctypes.memmove(part, state[offset : offset + len(part)], len(part))
                offset += len(part)

    def close_extras(self, **kwargs: Any) -> None:
        """Frees the consoles."""
        if handle := getattr(self, "_handle", None):
            self._handle = None
            self._library.atari_vector_free(handle)

    def _parts(self, k: int) -> list[ctypes.Array]:
        lib = self._library
        sizes = lib.atari_player_size(), lib.atari_vector_screens_size(self._handle)
        addresses = lib.atari_vector_player(self._handle, k), lib.atari_vector_screens(self._handle, k)
        return [(ctypes.c_char * n).from_address(at) for n, at in zip(sizes, addresses, strict=True)]

    def _start(self, actions: np.ndarray | None, reset: np.ndarray | None, seeds: np.ndarray | None) -> None:
        if self._waiting is not None:
            raise RuntimeError("send() was called twice; call recv() first")
        n = self.num_envs
        arrays = (
            np.empty((n, *self._shape), np.uint8), np.empty(n, np.float32), np.empty(n, bool),
            np.empty(n, bool), np.empty(n, np.int32), np.empty(n, np.int32),
        )  # fmt: skip
        addresses: list[int] = [a.ctypes.data for a in arrays]
        outputs = _Outputs(*addresses, None)
        self._waiting = arrays, actions, reset, seeds  # kept alive until recv
        self._library.atari_vector_send(
            self._handle,
            *[None if a is None else a.ctypes.data for a in (actions, reset, seeds)],
            ctypes.byref(outputs),
        )
