"""`VectorAtari`: many consoles of one game with Gymnasium's vector interface."""

from __future__ import annotations

import ctypes
import functools
import tomllib
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from gunreal.emulator.build import library
from gunreal.emulator.console import WIDTH, load_game

# Frames without input at an episode's start, and the probability that a frame repeats the action before; the names are
# those of gunreal.envs.atari.
PROTOCOLS = {"deterministic": (30, 0.0), "v5": (1, 0.25)}


class _Protocol(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("frame_skip", "noop_max", "max_frames", "channels", "height",
                                                    "width", "maximum")] + [("sticky", ctypes.c_uint32)]  # fmt: skip


class _Outputs(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("frames", "reward", "terminated", "truncated", "lives",
                                                     "episode_frames", "ram")]  # fmt: skip


class VectorAtari(gymnasium.vector.VectorEnv):
    """`num_envs` consoles that play one game.

    Observations are uint8 `[num_envs, 1, height, width]` (gray) or `[num_envs, 3, height, width]` (RGB): the maximum of
    a step's last two frames, resized by area. Rewards are float32 and raw. The step after an episode's end resets and
    has reward 0 (`AutoresetMode.NEXT_STEP`). `info` holds `lives` and `episode_frame_number`, int32 `[num_envs]`.

    Args:
      game: such as "pong", "Pong" or "ALE/Pong-v5".
      num_envs: how many consoles.
      device: "cpu".
      protocol: "v5" (sticky actions) or "deterministic" (up to 30 no-ops), see `PROTOCOLS`.
      num_threads: threads that step consoles; 0 steps them inside `send`.
      frame_skip: frames of a step.
      repeat_action_probability: in place of the protocol's.
      noop_max: in place of the protocol's; an episode starts with 1 to `noop_max` frames without input, 0 has none.
      size: (height, width) of an observation; None: the screen's own.
      grayscale: gray, or RGB.
      maximum: whether an observation is the maximum of the last two frames, or the last.
      full_action_space: all 18 actions, or the game's own.
      difficulty: bit 0 and 1: the left and the right switch at A.
      max_num_frames_per_episode: truncates longer episodes; 0 does not.

    Raises:
      UnknownGame, EmulatorUnavailable, ValueError: one line that names the fix.
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
        difficulty: int = 0,
        max_num_frames_per_episode: int = 108_000,
        render_mode: str | None = None,
    ):
        if device != "cpu":
            raise ValueError(f"device {device!r}: the emulator runs on the CPU; use device='cpu'")
        if protocol not in PROTOCOLS:
            raise ValueError(f"unknown protocol {protocol!r}: choose one of {sorted(PROTOCOLS)}")
        if num_envs < 1 or frame_skip < 1:
            raise ValueError(f"num_envs {num_envs} and frame_skip {frame_skip}: give 1 or more")
        default_noops, default_sticky = PROTOCOLS[protocol]
        sticky = default_sticky if repeat_action_probability is None else repeat_action_probability
        self._loaded = load_game(game, difficulty)
        self.game = self._loaded.game
        channels = 1 if grayscale else 3
        height, width = size or (self.game.height, WIDTH)
        settings = _Protocol(
            frame_skip, default_noops if noop_max is None else noop_max, max_num_frames_per_episode, channels, height,
            width, maximum, min(int(sticky * 2**32), 2**32 - 1),
        )  # fmt: skip
        palette = _channels(self.game.pal, grayscale)
        self._actions = np.arange(18) if full_action_space else np.array(self.game.actions)
        self._actions = self._actions.astype(np.int32)
        self._library = library()
        self._handle = self._library.atari_vector_new(
            self._loaded.handle, ctypes.byref(settings), palette.ctypes.data, num_envs, num_threads, 1
        )
        self.num_envs, self.render_mode = num_envs, render_mode
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": ["rgb_array"], "render_fps": 60}
        self._shape = (channels, height, width)
        self.single_observation_space = gymnasium.spaces.Box(0, 255, self._shape, np.uint8)
        self.single_action_space = gymnasium.spaces.Discrete(len(self._actions))
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self._waiting: tuple | None = None

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict]:
        """Starts an episode in each console; with `options["reset_mask"]`, bool `[num_envs]`, in those only."""
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        seeds = np.asarray(seed) if isinstance(seed, list | np.ndarray) else np.arange(self.num_envs) + seed
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} consoles: give one seed, or one for each")
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        if not mask.all() and self._waiting is None and not hasattr(self, "_last"):
            raise ValueError("the first reset must be of all consoles: leave reset_mask out")
        self._start(None, np.asarray(mask, np.uint8), np.asarray(seeds, np.int64))
        frames, _, _, _, info = self.recv()
        return frames, info

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """`frame_skip` frames of each console, or a reset where the last step ended an episode."""
        self.send(actions)
        return self.recv()

    def send(self, actions: np.ndarray) -> None:
        """Starts a step; `recv` completes it."""
        if not hasattr(self, "_last"):
            raise RuntimeError("step before reset: call reset() first")
        self._start(np.ascontiguousarray(self._actions[np.asarray(actions)]), None, None)

    def recv(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """What `send` has led to: observation, reward, terminated, truncated, info."""
        if self._waiting is None:
            raise RuntimeError("recv() without send()")
        self._library.atari_vector_recv(self._handle)
        frames, reward, terminated, truncated, lives, episode_frames = self._waiting[0]
        self._waiting, self._last = None, frames
        return frames, reward, terminated, truncated, {"lives": lives, "episode_frame_number": episode_frames}

    def render(self) -> tuple[np.ndarray, ...]:
        """The screens in RGB, uint8 `[height, 160, 3]` each."""
        palette = rgb_palette(self.game.pal)
        return tuple(palette[self.screen(k)] for k in range(self.num_envs))

    def screen(self, k: int) -> np.ndarray:
        """Palette indices of console k's last drawn frame, uint8 `[height, 160]`."""
        n = self._library.atari_vector_screens_size(self._handle) // 2
        address = self._library.atari_vector_screens(self._handle, k) + n * self._library.atari_vector_buffer(
            self._handle, k
        )
        return np.ctypeslib.as_array((ctypes.c_uint8 * n).from_address(address)).reshape(-1, WIDTH).copy()

    def ram(self) -> np.ndarray:
        """The memories, uint8 `[num_envs, 128]`."""
        out = np.empty((self.num_envs, 128), np.uint8)
        for k in range(self.num_envs):
            address = self._library.atari_vector_ram(self._handle, k)
            out[k] = np.ctypeslib.as_array((ctypes.c_uint8 * 128).from_address(address))
        return out

    def save(self) -> list[bytes]:
        """The states of all consoles with their pictures and random numbers; `restore` takes them."""
        return [b"".join(bytes(part) for part in self._parts(k)) for k in range(self.num_envs)]

    def restore(self, states: list[bytes]) -> None:
        """Goes on from `save`."""
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
            raise RuntimeError("send() twice: call recv() first")
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


@functools.cache
def _palettes() -> dict[str, np.ndarray]:
    with (Path(__file__).parent / "palettes.toml").open("rb") as file:
        text = tomllib.load(file)
    colors = {name: np.frombuffer(bytes.fromhex(value.replace("\n", "")), np.uint8) for name, value in text.items()}
    for name in ("ntsc_rgb", "ntsc_gray"):  # bit 0 of an index is unused
        colors[name] = np.repeat(colors[name].reshape(128, -1), 2, axis=0).ravel()
    return colors


def gray_palette(pal: bool) -> np.ndarray:
    """Gray values of the 256 indices, uint8 `[256]`."""
    return _palettes()["pal_gray" if pal else "ntsc_gray"]


def rgb_palette(pal: bool) -> np.ndarray:
    """Colors of the 256 indices, uint8 `[256, 3]`."""
    return _palettes()["pal_rgb" if pal else "ntsc_rgb"].reshape(256, 3)


def _channels(pal: bool, grayscale: bool) -> np.ndarray:
    """Values of the indices, channel by channel, uint8 `[3, 256]`; gray is in the first only."""
    values = np.zeros((3, 256), np.uint8)
    values[: 1 if grayscale else 3] = gray_palette(pal) if grayscale else rgb_palette(pal).T
    return values
