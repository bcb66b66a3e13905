"""Compares the emulator with ale-py frame by frame: memory, screen, reward, lives and game over."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gunreal.emulator.console import Console
from gunreal.emulator.games import find_game


class Result(NamedTuple):
    """The result for one game: the first difference ("" if none), and counts of what happened in the frames."""

    game: str
    difference: str
    frames: int
    games_over: int
    rewards: int
    lives_lost: int
    short_frames: int


def oracle(game: str, mode: int | None = None, difficulty: int | None = None):  # noqa: ANN201
    """Returns an ale-py emulator, an `ALEInterface`, with the game loaded and without sticky actions."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("random_seed", 0)
    ale.loadROM(ale_py.roms.get_rom_path(game))
    if mode is not None:
        ale.setMode(mode)
    if difficulty is not None:
        ale.setDifficulty(difficulty)
    return ale


def actions_of(seed: int, frames: int) -> np.ndarray:
    """Returns random actions of the full action set, each held for a few frames, int `[frames]`."""
    rng = np.random.default_rng(seed)
    change, drawn = rng.random(frames) < 0.3, rng.integers(18, size=frames)
    change[0] = True
    return drawn[np.maximum.accumulate(np.where(change, np.arange(frames), 0))]


def compare(game: str, frames: int, seed: int, mode: int | None = None, difficulty: int | None = None) -> Result:
    """Plays random actions on both emulators, with a reset after each game over and one save and restore."""
    ale, ours = oracle(game, mode, difficulty), Console(game, mode, difficulty or 0)
    ale.reset_game()
    ours.reset_game()
    lives, overs, rewards, lost, short = ale.lives(), 0, 0, 0, 0
    for t, action in enumerate(actions_of(seed, frames)):
        if t == frames // 2:
            _leave_and_return(ale, ours)
        theirs, mine = ale.act(int(action)), ours.act(int(action))
        rewards += theirs != 0
        lost += ale.lives() < lives
        lives = ale.lives()
        short += not ours.whole()
        if found := _difference(ale, ours, theirs, mine):
            return Result(game, f"frame {t}: {found}", t, overs, rewards, lost, short)
        if ale.game_over():
            overs += 1
            ale.reset_game()
            ours.reset_game()
            lives = ale.lives()
            if found := _difference(ale, ours, 0, 0):
                return Result(game, f"after the reset at frame {t}: {found}", t, overs, rewards, lost, short)
    return Result(game, "", frames, overs, rewards, lost, short)


def _leave_and_return(ale, ours: Console) -> None:  # noqa: ANN001
    """Saves the states, plays other actions and restores the states."""
    theirs, mine = ale.cloneState(), ours.save()
    for _ in range(7):
        ale.act(1)
        ours.act(1)
    ale.restoreState(theirs)
    ours.restore(mine)
    whole = 0
    for _ in range(30):  # redraws both screen buffers, in most games with two frames
        if whole == 2 or ours.game_over():
            break
        ale.act(0)
        ours.act(0)
        whole += ours.whole()
    if ours.game_over():
        ale.reset_game()
        ours.reset_game()


def _difference(ale, ours: Console, their_reward: int, our_reward: int) -> str:  # noqa: ANN001
    memory, mine = ale.getRAM(), ours.getRAM()
    if (memory != mine).any():
        at = int(np.argmax(memory != mine))
        differ = (memory != mine).sum()
        return f"memory {0x80 + at:02X} is {memory[at]} in ale-py and {mine[at]} in gunreal ({differ} bytes differ)"
    for name, a, b in (("reward", their_reward, our_reward), ("lives", ale.lives(), ours.lives()),
                       ("game over", ale.game_over(), ours.game_over())):  # fmt: skip
        if a != b:
            return f"{name} is {a} in ale-py and {b} in gunreal"
    screen, ours_screen = ale.getScreen(), ours.getScreen()
    if (screen != ours_screen).any():
        rows, columns = np.nonzero(screen != ours_screen)
        return f"{len(rows)} pixels differ, the first one in row {rows[0]}, column {columns[0]}"
    return ""


def verify_modes(games: list[str], frames: int, seed: int) -> int:
    """Prints a table of all modes and difficulties of `games`. Returns 1 if one differs, else 0."""
    print(
        "| game | supported modes | other modes of ale-py | difficulties | result |\n|---|---|---|---|---|", flush=True
    )
    failed = 0
    for game in games:
        ale, modes = oracle(game), find_game(game).modes
        difficulties = ale.getAvailableDifficulties()
        others = [mode for mode in ale.getAvailableModes() if mode not in modes]
        results = {(m, d): compare(game, frames, seed, m, d).difference for m in modes for d in difficulties}
        bad = [f"mode {m}, difficulty {d}, {text}" for (m, d), text in results.items() if text]
        failed += bool(bad)
        cells = (game, *(" ".join(map(str, numbers)) for numbers in (modes, others, difficulties)))
        print(f"| {' | '.join(cells)} | {'; '.join(bad) or 'equal'} |", flush=True)
    print(
        f"\n{len(games) - failed} of {len(games)} games equal over {frames} frames in all supported modes", flush=True
    )
    return 1 if failed else 0


def verify(games: list[str], frames: int, seed: int, refused: dict[str, str]) -> int:
    """Prints a table of `games` and of the refused games. Returns 1 if a game differs, else 0."""
    print("| game | result | frames | game overs | rewards | lives lost |\n|---|---|---|---|---|---|", flush=True)
    failed = 0
    for game in games:
        result = compare(game, frames, seed)
        failed += bool(result.difference)
        print(f"| {game} | {result.difference or 'equal'} | {result.frames} | {result.games_over} | {result.rewards} | "
              f"{result.lives_lost} |", flush=True)  # fmt: skip
    for game, why in refused.items():
        print(f"| {game} | not supported: {why} | | | | |")
    print(f"\n{len(games) - failed} of {len(games)} games equal over {frames} frames, seed {seed}", flush=True)
    return 1 if failed else 0
