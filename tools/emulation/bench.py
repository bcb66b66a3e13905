"""Compares the emulator's speed with ale-py's, in CPU time of this process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
from gunreal_emulator import VectorAtari
from gunreal_emulator.console import Console
from gunreal_emulator.games import find_game

from emulation.verify import actions_of, oracle
from gunreal.config.packages import is_installed

ENVS = 8  # emulators in a vector environment


def bench(games: list[str], frames: int, rounds: int) -> int:
    """Prints the median frames and agent steps (4 frames, gray, 84x84) per second of ale-py, EnvPool and gunreal.

    EnvPool is only measured if it is installed and has the game.
    """
    print(
        "| game | ale-py, frames/s | gunreal, frames/s | gunreal without drawing, frames/s | ale-py, agent steps/s | "
        "EnvPool, agent steps/s | gunreal, agent steps/s | gunreal / ale-py | gunreal / EnvPool |\n|" + "---|" * 9,
        flush=True,
    )
    ratios: dict[str, list[float]] = {"ale-py": [], "EnvPool": []}
    for game in games:
        candidates = {
            "ale-py, frames": _ale_raw(game, frames),
            "frames": _own_raw(game, frames, True),
            "undrawn": _own_raw(game, frames, False),
            "ale-py": _ale_steps(game, frames),
            "EnvPool": _envpool_steps(game, frames),
            "steps": _own_steps(game, frames),
        }
        rates = [{name: run() for name, run in candidates.items() if run} for _ in range(rounds)]
        medians = {name: statistics.median(row[name] for row in rates) for name in rates[0]}
        cells = [f"{medians[name]:,.0f}" if name in medians else "" for name in candidates]
        for other, found in ratios.items():
            if other in medians:
                found.append(medians["steps"] / medians[other])
            cells.append(f"{found[-1]:.2f}" if other in medians else "")
        print(f"| {game} | {' | '.join(cells)} |", flush=True)
    print()
    for other, found in ratios.items():
        if found:
            print(f"gunreal / {other}: median {statistics.median(found):.2f}, lowest {min(found):.2f}, {rounds} rounds")
    return 0


def _rate(count: int, work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return count / (time.process_time() - start)


def _ale_raw(game: str, frames: int) -> Callable[[], float]:
    ale, actions = oracle(game), actions_of(0, frames)
    legal = ale.getLegalActionSet()

    def work() -> None:
        for action in actions:
            ale.act(legal[action])
            if ale.game_over():
                ale.reset_game()

    return lambda: _rate(frames, work)


def _own_raw(game: str, frames: int, draw: bool) -> Callable[[], float]:
    console, actions = Console(game), [int(a) for a in actions_of(0, frames)]
    console.start_game()

    def work() -> None:
        for action in actions:
            console.act(action, draw)
            if console.game_over():
                console.start_game()

    return lambda: _rate(frames, work)


def _ale_steps(game: str, frames: int) -> Callable[[], float]:
    from ale_py.vector_env import AtariVectorEnv

    envs = AtariVectorEnv(game, ENVS, num_threads=1, use_fire_reset=False, reward_clipping=False, stack_num=1,
                          noop_max=1)  # fmt: skip
    return _steps(envs, game, frames)


def _envpool_steps(game: str, frames: int) -> Callable[[], float] | None:
    if not is_installed("envpool"):
        return None
    import envpool

    name = game.title().replace("_", "") + "-v5"
    if name not in envpool.list_all_envs():
        return None
    return _steps(envpool.make_gymnasium(name, num_envs=ENVS, num_threads=1, stack_num=1, noop_max=1,
                                         use_inter_area_resize=True), game, frames)  # fmt: skip


def _own_steps(game: str, frames: int) -> Callable[[], float]:
    return _steps(VectorAtari(game, ENVS, protocol="deterministic", noop_max=1), game, frames)


def _steps(envs, game: str, frames: int) -> Callable[[], float]:  # noqa: ANN001
    envs.reset()
    steps = max(1, frames // 4 // ENVS)
    choices = find_game(game).actions
    actions = np.random.default_rng(0).integers(len(choices), size=(steps, ENVS), dtype=np.int32)

    def work() -> None:
        for action in actions:
            envs.step(action)

    return lambda: _rate(steps * ENVS, work)
