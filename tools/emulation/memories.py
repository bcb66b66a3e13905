"""Compares the rules for score, lives and end with ale-py's, for memories that play may never reach.

Both consoles are parked: their processor stands on an instruction that stops it, so that a frame changes nothing, and
the rules see exactly the memory that was written. ale-py has no function for this. The place of the program counter in
its saved states is found by its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from gunreal_emulator.console import Console, read_rom
from gunreal_emulator.pack import player_offset

from emulation.verify import Pair, actions_of

_STOPS = frozenset(range(0x02, 0x100, 0x10)) - {0x82, 0xA2, 0xC2, 0xE2}  # opcodes that stop a 6502
_OFTEN = (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 0x40, 0x7F, 0x80, 0x81, 0x99, 0xAA, 0xF0, 0xFE, 0xFF)
UNCOMPARED = {"miniature_golf": "ale-py forgets the par of the hole when a state is restored"}


class Parked:
    """Both consoles, parked after `frames` frames of random actions."""

    def __init__(self, game: str, mode: int | None = None, frames: int = 200, seed: int = 0):
        self.pair = pair = Pair(game, mode)
        for action in actions_of(seed, frames):
            pair.act(int(action), screen=False)
            if pair.ale.game_over():
                pair.reset()
        self.start = pair.ale.getRAM()
        self._mine, self._theirs = self._park()
        self.restore()

    def _park(self) -> tuple[np.ndarray, object]:
        import ale_py

        ale, at, rng = self.pair.ale, player_offset("pc"), np.random.default_rng(0)
        mine, saved = self.pair.ours._player.copy(), ale.cloneState().serialize()
        counters = [found.start() for found in re.finditer(re.escape(mine[at : at + 2].tobytes()), saved)]
        stops = [0xF000 + k % 4096 for k, op in enumerate(read_rom(self.pair.ours.game.name)) if op in _STOPS]
        for counter in reversed(counters):
            for stop in stops:  # of all banks: only those of the present one stop it
                changed, state = bytearray(saved), ale_py.ALEState.__new__(ale_py.ALEState)
                changed[counter : counter + 2] = stop.to_bytes(2, "little")
                state.__setstate__(bytes(changed))
                ale.restoreState(state)
                random = rng.integers(256, size=(6, 128)).astype(np.uint8)
                if all(self._stands(memory) for memory in (self.start, *random, self.start)):
                    mine[at : at + 2] = np.frombuffer(stop.to_bytes(2, "little"), np.uint8)
                    return mine, state
        raise RuntimeError(f"{self.pair.ours.game.name} has no instruction on which it can be parked")

    def _stands(self, memory: np.ndarray) -> bool:
        for address, value in enumerate(memory):
            self.pair.ale.setRAM(address, int(value))
        self.pair.ale.act(0)
        return bool((self.pair.ale.getRAM() == memory).all())

    def restore(self) -> None:
        """Restores the memory and what the rules remember."""
        self.pair.ale.restoreState(self._theirs)
        self.pair.ale.act(0)  # after which what ale-py keeps outside of its states belongs to this memory
        self.pair.ale.restoreState(self._theirs)
        self.pair.ours._player[:] = self._mine
        self.memory = self.start.copy()
        self.pair.act(0, screen=False)

    def judge(self, memory: np.ndarray) -> str:
        """Returns the difference between the rules for a memory, uint8 `[128]`, or "" if there is none."""
        for address in np.flatnonzero(memory != self.memory):
            self.pair.ale.setRAM(int(address), int(memory[address]))
        self.pair.ours._ram[:] = self.memory = memory.copy()
        return self.pair.act(0, screen=False)


def compare_rules(game: str, count: int, seed: int, mode: int | None = None) -> tuple[int, str]:
    """Feeds both emulators `count` mutated memories, 300 reached in play, and each value of each byte.

    Returns:
      The number of memories, and the first difference with the bytes that differ from the memory before ("" if none).
    """
    if game in UNCOMPARED:
        return 0, ""
    parked, rng, done = Parked(game, mode, seed=seed), np.random.default_rng(seed), 0
    for memory in _memories(parked, rng, count, seed):
        before, done = parked.memory, done + 1
        if found := parked.judge(memory):
            changes = [f"{0x80 + k:02X}: {before[k]} to {memory[k]}" for k in np.flatnonzero(before != memory)]
            return done, f"memory {done} ({', '.join(changes)}): {found}"
        if parked.pair.ale.game_over():
            parked.restore()
    return done, ""


def _memories(parked: Parked, rng: np.random.Generator, count: int, seed: int) -> Iterator[np.ndarray]:
    reached, game = _reached(parked.pair.ours.game.name, seed), parked.pair.ours.game
    yield from reached
    named = re.findall(r"0x([89A-F][0-9A-F])\b", " ".join((game.score, game.lives, game.over, game.reward, game.flag)))
    used = np.array([int(address, 16) - 0x80 for address in named] or [0])
    for _ in range(count):
        memory = (reached[rng.integers(len(reached))] if rng.random() < 0.3 else parked.memory).copy()
        if rng.random() < 0.1:
            memory = rng.integers(256, size=128).astype(np.uint8)
        for _ in range(rng.integers(1, 4)):
            k, kind = rng.choice(used) if rng.random() < 0.75 else rng.integers(128), rng.random()
            step = (int(memory[k]) + int(rng.integers(-2, 3))) % 256
            memory[k] = rng.choice(_OFTEN) if kind < 0.4 else step if kind < 0.7 else rng.integers(256)
        yield memory
    for k in range(128):
        parked.restore()
        for value in range(256):
            memory = parked.start.copy()
            memory[k] = value
            yield memory


def _reached(game: str, seed: int) -> list[np.ndarray]:
    console, reached = Console(game), []
    console.start_game()
    for frame, action in enumerate(actions_of(seed + 1, 6_000)):
        console.act(int(action), draw=False)
        if frame % 20 == 0:
            reached.append(console.getRAM())
        if console.game_over():
            console.start_game()
    return reached
