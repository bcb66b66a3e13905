"""A single emulated console with the methods of ale-py's `ALEInterface`."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
import weakref
from collections.abc import Sequence

import numpy as np

from gunreal_emulator.build import library, source_hash
from gunreal_emulator.games import ACTIONS, CARTRIDGES, Game, UnknownGame, find_game
from gunreal_emulator.native import KIND, Native, alone, check_whole, seal, unseal
from gunreal_emulator.rules import VARIABLES, compile_rule

WIDTH = 160
_CODE = ctypes.POINTER(ctypes.c_int32)


class _Description(ctypes.Structure):
    _fields_ = [
        ("rom", ctypes.c_char_p),
        *((name, ctypes.c_int32) for name in ("rom_size", "scheme", "paddles", "first_line", "height", "max_lines",
                                              "hmove_blanks", "color_loss")),
        *((name, _CODE) for name in ("over", "score", "reward", "lives", "flag")),
        ("initial", ctypes.c_int32 * len(VARIABLES)),
        *((name, ctypes.c_char_p) for name in ("start", "first_start")),
        *((name, ctypes.c_int32) for name in ("start_length", "first_length", "difficulty", "right_port", "ignored",
                                              "paddle_high", "start_frames")),
    ]  # fmt: skip


class LoadedGame(Native):
    """A game loaded into the C++ library.

    Attributes:
      game: the description of the game.
      handle: argument for the functions of the library.
      kind: beginning of the states of its consoles, which depends on the game, its mode and the emulator.
    """

    def __init__(self, game: Game, mode: int | None = None, difficulty: int = 0):
        self.game = game
        if difficulty and difficulty not in game.difficulties:  # ale-py starts each game with 0
            known = ", ".join(map(str, game.difficulties))
            raise UnknownGame(f"{game.name} has no difficulty {difficulty}; use one of {known}")
        rom, start = read_rom(game.name), bytes(game.start_of(mode, difficulty))
        first = bytes(game.start_of())
        rules = {name: compile_rule(text) for name in ("over", "score", "reward", "lives", "flag")
                 if (text := getattr(game, name))}  # fmt: skip
        description = _Description(
            rom=rom, rom_size=len(rom), scheme=CARTRIDGES.index(game.cartridge), paddles=game.paddles,
            first_line=game.first_line, height=game.height, max_lines=342 if game.pal else 290,
            hmove_blanks=game.hmove_blanks, color_loss=game.pal,
            initial=(ctypes.c_int32 * len(VARIABLES))(*game.initial),
            start=start, start_length=len(start), first_start=first, first_length=len(first), difficulty=difficulty,
            right_port=game.right_port, ignored=sum(1 << action for action in game.ignored),
            paddle_high=game.paddle_high, start_frames=game.start_frames(mode, difficulty),
            **{name: code.ctypes.data_as(_CODE) for name, code in rules.items()},
        )  # fmt: skip
        lib, mode = library(), next(iter(game.modes)) if mode is None else mode
        self.kind = hashlib.sha256(f"{source_hash()} {game.name} {mode} {difficulty}".encode()).digest()[:KIND]
        self.handle = lib.atari_game_new(ctypes.byref(description))
        weakref.finalize(self, lib.atari_game_free, self.handle).atexit = False


def load_game(name: str, mode: int | None = None, difficulty: int = 0) -> LoadedGame:
    """Loads a game by its name. Raises UnknownGame, EmulatorUnavailable and ValueError."""
    check_whole("difficulty", difficulty, 0, 3)
    if mode is not None:
        check_whole("mode", mode, 0, 2**15)
    return loaded_game(find_game(name).name, mode, difficulty)


@functools.lru_cache(maxsize=8)
def loaded_game(name: str, mode: int | None, difficulty: int) -> LoadedGame:
    """Returns a game that is loaded once for all of its consoles."""
    return LoadedGame(find_game(name), mode, difficulty)


def read_rom(name: str) -> bytes:
    """Reads the ROM of a game from the package ale-py."""
    import importlib.resources

    return (importlib.resources.files("ale_py.roms") / f"{name}.bin").read_bytes()


class Console(Native):
    """One console, which behaves exactly like ale-py's. One thread at a time may use it.

    The methods and the action numbers 0 to 17 are those of `ale_py.ALEInterface`.
    """

    def __init__(self, name: str, mode: int | None = None, difficulty: int = 0):
        self._loaded = load_game(name, mode, difficulty)
        self.game, self._library, self._lock = self._loaded.game, library(), threading.RLock()
        self._handle = self._library.atari_console_new(self._loaded.handle)
        weakref.finalize(self, self._library.atari_console_free, self._handle).atexit = False
        player = self._library.atari_console_player(self._handle)
        self._player = np.ctypeslib.as_array((ctypes.c_uint8 * self._library.atari_player_size()).from_address(player))
        ram = self._library.atari_console_ram(self._handle)
        self._ram = np.ctypeslib.as_array((ctypes.c_uint8 * 128).from_address(ram))

    @alone
    def reset_game(self) -> None:
        """Switches the console off and on, and starts the game. As in ale-py, the start may depend on the past."""
        self._library.atari_console_reset(self._handle)

    @alone
    def start_game(self) -> None:
        """Restores the first start of the game after loading, which is always the same."""
        self._library.atari_console_start(self._handle)

    @alone
    def act(self, action: int, draw: bool = True) -> int:
        """Emulates one frame and returns its reward. Without `draw`, the screen is not updated.

        Raises:
          ValueError: the action is not a whole number from 0 to 17.
        """
        check_whole("the action", action, 0, len(ACTIONS) - 1)
        return self._library.atari_console_act(self._handle, action, draw)

    @alone
    def play(self, actions: Sequence[int], max_frames: int, values: np.ndarray, out: np.ndarray) -> int:
        """Emulates a frame of each action, until the game is over or has lasted for `max_frames` (0: no limit).

        Only what the picture shows is drawn.

        Args:
          actions: the actions.
          max_frames: as above.
          values: value of each palette index by channel, uint8 `[channels, 256]`.
          out: the values of the picture are written here, uint8 `[channels, height, 160]`, contiguous. They are the
            maximum of the last two frames, or those of the last frame if the game ended.

        Returns:
          The reward.

        Raises:
          ValueError: an action is not a whole number from 0 to 17, or an array has another shape or dtype.
        """
        if not len(actions):
            raise ValueError("there are no actions to play; give one for each frame")
        for action in actions:
            check_whole("an action", action, 0, len(ACTIONS) - 1)
        check_whole("max_frames", max_frames, 0, 2**31 - 1)
        for name, array, shape in (
            ("values", values, (len(values), 256)),
            ("out", out, (len(values), self.game.height, WIDTH)),
        ):
            if array.shape != shape or array.dtype != np.uint8 or not array.flags.c_contiguous:
                raise ValueError(
                    f"{name} is {array.dtype} of shape {array.shape}; give contiguous uint8 of shape {shape}"
                )
        return self._library.atari_console_play(
            self._handle, bytes(actions), len(actions), max_frames, values.ctypes.data, len(values), out.ctypes.data
        )

    def game_over(self) -> bool:
        """Whether the game has ended."""
        return bool(self._library.atari_console_over(self._handle))

    def lives(self) -> int:
        """Returns the number of lives left, or 0 in games without lives."""
        return self._library.atari_console_lives(self._handle)

    def frames(self) -> int:
        """Returns the number of frames of the game, which may include a part of its start, as in ale-py."""
        return self._library.atari_console_frames(self._handle)

    def whole(self) -> bool:
        """Whether the last frame filled the whole screen. Otherwise the rest of the screen shows earlier frames."""
        return bool(self._library.atari_console_whole(self._handle))

    @alone
    def getRAM(self) -> np.ndarray:  # noqa: N802
        """Returns the memory, uint8 `[128]`."""
        return self._ram.copy()

    @alone
    def getScreen(self) -> np.ndarray:  # noqa: N802
        """Returns the screen as palette indices, uint8 `[height, 160]`."""
        address = self._library.atari_console_screen(self._handle)
        size = self.game.height * WIDTH
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).reshape(-1, WIDTH).copy()

    @alone
    def save(self) -> bytes:
        """Returns the state without the screen, for `restore`. It is valid for the same version of the emulator."""
        return seal(self._loaded.kind, self._player.tobytes())

    @alone
    def restore(self, state: bytes) -> None:
        """Restores a state of `save`. Raises ValueError if it is damaged or of another game, mode or version."""
        self._player[:] = unseal(state, self._loaded.kind, self._player.size)
