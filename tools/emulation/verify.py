"""Compares the emulator with ale-py frame by frame: memory, screen, reward, lives, ends and the number of the frame."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gunreal_emulator.ale import OwnALE
from gunreal_emulator.games import find_game

LIMIT = 108_000  # frames of an episode
NOOPS, HELD = 110_000, 5_000  # frames of `compare_long` without input, and with each action
SCREENS = 16  # of these frames, `compare_long` compares one screen


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
    ale.setInt("max_num_frames_per_episode", LIMIT)
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
    change[:1] = True
    return drawn[np.maximum.accumulate(np.where(change, np.arange(frames), 0))]


class Pair:
    """ale-py's emulator and this one, after a reset of both."""

    def __init__(self, game: str, mode: int | None = None, difficulty: int | None = None):
        self.ale, self.own = oracle(game, mode, difficulty), OwnALE(game, mode, difficulty or 0, LIMIT)
        self.ours = self.own._console
        self.reset()

    def reset(self, screen: bool = True) -> str:
        """Resets both and returns the difference, or "" if there is none."""
        self.ale.reset_game()
        self.ours.reset_game()
        return self._difference(0, 0, screen)

    def act(self, action: int, screen: bool = True) -> str:
        """Plays a frame on both and returns the difference, or "" if there is none."""
        self.reward = self.ale.act(action)
        return self._difference(self.reward, self.ours.act(action), screen)

    def _difference(self, theirs: int, mine: int, screen: bool) -> str:
        ale, ours = self.ale, self.ours
        for name, a, b in (("reward", theirs, mine), ("lives", ale.lives(), ours.lives()),
                           ("game over", ale.game_over(with_truncation=False), ours.game_over()),
                           ("frame number", ale.getEpisodeFrameNumber(), ours.frames()),
                           ("truncation", ale.game_truncated(), self.own.game_truncated())):  # fmt: skip
            if a != b:
                return f"{name} is {a} in ale-py and {b} in gunreal"
        memory, own = ale.getRAM(), ours.getRAM()
        if (memory != own).any():
            at, differ = int(np.argmax(memory != own)), (memory != own).sum()
            return f"memory {0x80 + at:02X} is {memory[at]} in ale-py and {own[at]} in gunreal ({differ} bytes differ)"
        if screen and (seen := (ale.getScreen() != ours.getScreen())).any():
            rows, columns = np.nonzero(seen)
            return f"{len(rows)} pixels differ, the first one in row {rows[0]}, column {columns[0]}"
        return ""

    def leave_and_return(self) -> str:
        """Saves the states, plays other actions and restores the states. Screens are not in the states.

        The frames until both screen buffers are redrawn, in most games two, are compared without their screens.
        """
        theirs, mine = self.ale.cloneState(), self.ours.save()
        for _ in range(7):
            self.ale.act(1)
            self.ours.act(1)
        self.ale.restoreState(theirs)
        self.ours.restore(mine)
        whole, found = 0, ""
        for _ in range(30):
            if whole == 2 or found or self.ale.game_over():
                break
            found = self.act(0, screen=False)
            whole += self.ours.whole()
        return self.reset() if not found and self.ale.game_over() else found


def compare(game: str, frames: int, seed: int, mode: int | None = None, difficulty: int | None = None) -> Result:
    """Plays random actions on both emulators, with a reset after each game over and one save and restore."""
    return _played(game, actions_of(seed, frames), Pair(game, mode, difficulty), frames // 2, 1)


def compare_long(game: str) -> Result:
    """Plays for longer than an episode without input, and then each action for 5,000 frames after a reset.

    One screen in 16 is compared, and everything else in every frame.
    """
    pair = Pair(game)
    actions = np.concatenate([np.zeros(NOOPS, int), np.repeat(np.arange(18), HELD)])
    return _played(game, actions, pair, None, SCREENS, {NOOPS + HELD * k for k in range(18)})


def _played(
    game: str, actions: np.ndarray, pair: Pair, leave: int | None, screens: int, resets: Iterable[int] = ()
) -> Result:
    lives, overs, rewards, lost, short = pair.ale.lives(), 0, 0, 0, 0
    for t, action in enumerate(actions):
        where, found = f"frame {t}", ""
        if t in resets or pair.ale.game_over():
            overs += pair.ale.game_over()
            where, found = f"the reset before frame {t}", pair.reset()
            lives = pair.ale.lives()
        if t == leave:
            found = found or pair.leave_and_return()
        if not found:
            where, found = f"frame {t}", pair.act(int(action), t % screens == 0)
        rewards += pair.reward != 0
        lost += pair.ale.lives() < lives
        lives = pair.ale.lives()
        short += not pair.ours.whole()
        if found:
            return Result(game, f"{where}: {found}", t, overs, rewards, lost, short)
    return Result(game, "", len(actions), overs, rewards, lost, short)


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


def verify(
    games: list[str], play: Callable[[str], Result], how: str, refused: dict[str, str], file: Path | None = None
) -> int:
    """Prints a table of `games` and of the refused games. Returns 1 if a game differs, else 0.

    Each result becomes a line of JSON in `file`. Games that were equal there, `how` they were played, are not played
    again.
    """
    print("| game | result | frames | game overs | rewards | lives lost |\n|---|---|---|---|---|---|", flush=True)
    lines = [json.loads(line) for line in (file.read_text().splitlines() if file and file.exists() else [])]
    done = {line["game"]: Result(**line) for line in lines if line.pop("how", None) == how and not line["difference"]}
    failed = 0
    for game in games:
        result = done.get(game) or play(game)
        failed += bool(result.difference)
        print(f"| {game} | {result.difference or 'equal'} | {result.frames} | {result.games_over} | {result.rewards} | "
              f"{result.lives_lost} |", flush=True)  # fmt: skip
        if file and game not in done:
            with file.open("a") as out:
                out.write(json.dumps({"how": how, **result._asdict()}, default=int) + "\n")
    for game, why in refused.items():
        print(f"| {game} | not supported: {why} | | | | |")
    print(f"\n{len(games) - failed} of {len(games)} games equal {how}", flush=True)
    return 1 if failed else 0


def verify_rules(games: list[str], compare_rules: Callable[[str], tuple[int, str]], skipped: dict[str, str]) -> int:
    """Prints a table of the rules of `games`. Returns 1 if a game differs, else 0."""
    print("| game | result | memories |\n|---|---|---|", flush=True)
    failed = 0
    for game in games:
        count, difference = compare_rules(game)
        failed += bool(difference)
        text = difference or (f"not compared: {skipped[game]}" if game in skipped else "equal")
        print(f"| {game} | {text} | {count} |", flush=True)
    print(f"\nThe rules of {failed} of {len(games)} games differ", flush=True)
    return 1 if failed else 0
