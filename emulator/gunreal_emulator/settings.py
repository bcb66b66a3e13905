"""Settings of the steps and observations of a vector of consoles, from the arguments of `VectorAtari`."""

from __future__ import annotations

import ctypes
import functools
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gunreal_emulator.console import WIDTH, LoadedGame, load_game
from gunreal_emulator.native import check_whole

# Maximum number of no-op frames at the start of an episode, and the probability that a frame repeats the last action.
# "deterministic": Mnih et al. 2015/2016, as in GA3C, UNREAL and GUNREAL. "v5": sticky actions, Machado et al. 2018.
PROTOCOLS = {"deterministic": (30, 0.0), "v5": (1, 0.25)}


class Protocol(ctypes.Structure):
    """The structure `Protocol` of the C++ library."""

    _fields_ = [(name, ctypes.c_int32) for name in ("frame_skip", "noop_max", "max_frames", "channels", "height",
                                                    "width", "maximum")]  # fmt: skip
    _fields_ += [("sticky", ctypes.c_uint32), ("life_ends", ctypes.c_int32)]


@dataclass(frozen=True)
class Settings:
    """A loaded game with the settings of its steps and observations.

    Attributes:
      loaded: the game in the C++ library.
      protocol: settings for the C++ library.
      palette: values of the palette by channel, uint8 `[3, 256]`. Gray values are in the first channel.
      actions: numbers of the actions in ale-py by the agent's action, int32 `[actions]`.
      shape: (channels, height, width) of an observation.
    """

    loaded: LoadedGame
    protocol: Protocol
    palette: np.ndarray
    actions: np.ndarray
    shape: tuple[int, int, int]


def settings(
    game: str,
    *,
    protocol: str = "v5",
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
    observations: bool = True,
) -> Settings:
    """Loads a game and checks the settings. `VectorAtari` explains the arguments and raises the same errors.

    Without `observations`, nothing is drawn, and observations have no channels.
    """
    if not isinstance(protocol, str) or protocol not in PROTOCOLS:
        raise ValueError(f"unknown protocol {protocol!r}; available: {', '.join(sorted(PROTOCOLS))}")
    default_noops, default_sticky = PROTOCOLS[protocol]
    sticky = default_sticky if repeat_action_probability is None else repeat_action_probability
    noops = default_noops if noop_max is None else noop_max
    if isinstance(sticky, bool) or not (isinstance(sticky, int | float | np.number) and 0 <= sticky <= 1):
        raise ValueError(f"repeat_action_probability is {sticky!r}, but must be a number from 0 to 1")
    check_whole("frame_skip", frame_skip, 1, 10_000)
    check_whole("noop_max", noops, 0, 10_000)
    check_whole("max_num_frames_per_episode", max_num_frames_per_episode, 0, 2**31 - 1)
    if size is not None:
        if not (isinstance(size, Sequence) and len(size) == 2):
            raise ValueError(f"size is {size!r}, but must be (height, width), such as (84, 84)")
        height, width = size
        check_whole("the height of size", height, 1, 4096)
        check_whole("the width of size", width, 1, 4096)
    loaded = load_game(game, mode, difficulty)
    shape = ((1 if grayscale else 3) * observations, *(size or (loaded.game.height, WIDTH)))
    return Settings(
        loaded=loaded,
        protocol=Protocol(
            frame_skip, noops, max_num_frames_per_episode, *shape, bool(maximum), min(int(sticky * 2**32), 2**32 - 1)
        ),
        palette=_channels(loaded.game.pal, grayscale),
        actions=np.array(loaded.game.legal_actions if full_action_space else loaded.game.actions, np.int32),
        shape=shape,
    )  # fmt: skip


def several(game: str | Sequence[str], **options: Any) -> list[Settings]:
    """Loads one game or several with the same settings. Raises as `settings` does, or ValueError."""
    if not isinstance(game, Sequence):
        raise ValueError(f"the game is {game!r}, but must be a name such as 'pong', or several names")
    games = [settings(name, **options) for name in ([game] if isinstance(game, str) else game)]
    if not 0 < len(games) < 256:
        raise ValueError(f"got {len(games)} games; give between 1 and 255")
    if len({of.shape for of in games}) > 1:
        raise ValueError("the games have screens of different sizes; set size to that of the observations")
    return games


def games_of(games: int, consoles: int) -> np.ndarray:
    """Returns the index of each console's game, ascending, int32 `[consoles]`. Raises ValueError if a game has none."""
    if games > consoles:
        raise ValueError(f"{games} games need at least as many consoles, but num_envs is {consoles}")
    return (np.arange(consoles) * games // consoles).astype(np.int32)


@functools.cache
def _palettes() -> dict[str, np.ndarray]:
    with (Path(__file__).parent / "palettes.toml").open("rb") as file:
        text = tomllib.load(file)
    colors = {name: np.frombuffer(bytes.fromhex(value.replace("\n", "")), np.uint8) for name, value in text.items()}
    for name in ("ntsc_rgb", "ntsc_gray"):  # bit 0 of an index is unused
        colors[name] = np.repeat(colors[name].reshape(128, -1), 2, axis=0).ravel()
    return colors


def gray_palette(pal: bool) -> np.ndarray:
    """Returns the gray value of each palette index, uint8 `[256]`."""
    return _palettes()["pal_gray" if pal else "ntsc_gray"]


def rgb_palette(pal: bool) -> np.ndarray:
    """Returns the color of each palette index, uint8 `[256, 3]`."""
    return _palettes()["pal_rgb" if pal else "ntsc_rgb"].reshape(256, 3)


def _channels(pal: bool, grayscale: bool) -> np.ndarray:
    """Returns the values of the palette by channel, uint8 `[3, 256]`. Gray values are in the first channel."""
    values = np.zeros((3, 256), np.uint8)
    values[: 1 if grayscale else 3] = gray_palette(pal) if grayscale else rgb_palette(pal).T
    return values
