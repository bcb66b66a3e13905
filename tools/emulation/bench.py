"""Compares the emulator's speed with ale-py's, in CPU time of this process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from emulation.verify import actions_of, oracle
from gunreal.emulator import VectorAtari
from gunreal.emulator.console import Console

ENVS = 8  # emulators in a vector environment


def bench(games: list[str], frames: int, rounds: int) -> int:
    """Prints the median frames and agent steps (4 frames, gray, 84x84) per second of ale-py and of gunreal."""
    print(
        "| game | ale-py, frames/s | gunreal, frames/s | gunreal without drawing, frames/s | ale-py, agent steps/s | "
        "gunreal, agent steps/s | ratio of agent steps/s |\n|" + "---|" * 7,
        flush=True,
    )
    ratios = []
    for game in games:
        candidates = [_ale_raw(game, frames), _own_raw(game, frames, True), _own_raw(game, frames, False),
                      _ale_steps(game, frames), _own_steps(game, frames)]  # fmt: skip
        rates = [[run() for run in candidates] for _ in range(rounds)]
        medians = [statistics.median(column) for column in zip(*rates, strict=True)]
        ratios.append(medians[4] / medians[3])
        print(f"| {game} | " + " | ".join(f"{rate:,.0f}" for rate in medians) + f" | {ratios[-1]:.2f} |", flush=True)
    print(
        f"\nmedian ratio {statistics.median(ratios):.2f}, lowest ratio {min(ratios):.2f}, {rounds} rounds", flush=True
    )
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
    return _steps(envs, frames)


def _own_steps(game: str, frames: int) -> Callable[[], float]:
    return _steps(VectorAtari(game, ENVS, protocol="deterministic", noop_max=1), frames)


def _steps(envs, frames: int) -> Callable[[], float]:  # noqa: ANN001
    envs.reset(seed=0)
    steps = max(1, frames // 4 // ENVS)
    actions = np.random.default_rng(0).integers(envs.single_action_space.n, size=(steps, ENVS))

    def work() -> None:
        for action in actions:
            envs.step(action)

    return lambda: _rate(steps * ENVS, work)
