"""How much slower is a ViZDoom environment than its game engine?

  python tools/env_rate.py --env gunreal/NavMazeStatic-v0

The program steps a group of environments as an agent process does. It compares their rate with that of as many bare
ViZDoom engines on the same map, which only act and return their smallest image. Both sides take random actions in this
process, in short alternating turns. The rates, in agent steps per second, are those of the median turn.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from common.command_line import Parser, check_positive

from gunreal.config.derived import per_process
from gunreal.config.schema import Config, ConfigError
from gunreal.envs import vizdoom_maze
from gunreal.envs.make import make
from gunreal.envs.vizdoom_maze import ORDERS, TICS
from gunreal.train import prepare

_TURN = 5  # steps of all environments


def stepper(config: Config, count: int) -> Callable[[np.ndarray], None]:
    """Returns a function that takes one agent step in each environment."""
    env = make(config, count)
    seeds = np.arange(count)
    done = np.ones(count, bool)

    def step(actions: np.ndarray) -> None:
        last = env.step(actions, done, seeds)
        np.logical_or(last.terminated, last.truncated, out=done)

    return step


def bare(config: Config, count: int) -> Callable[[np.ndarray], None]:
    """Returns a function that takes one agent step in each bare engine."""
    args: dict[str, Any] = {"pixels": config.observation} | config.env_args
    envs = [gymnasium.make(config.env, **args).unwrapped for _ in range(count)]
    games = []
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
        games.append(env.engine.game)

    def step(actions: np.ndarray) -> None:
        for game, action in zip(games, actions.tolist(), strict=True):
            game.make_action(ORDERS[action], TICS)
            game.get_state().screen_buffer  # noqa: B018  (that copies it)

    return step


def duration(step: Callable[[np.ndarray], None], actions: np.ndarray) -> float:
    """Returns the mean seconds that one step of all environments takes; `actions` is int32 `[steps, environments]`."""
    start = time.perf_counter()
    for row in actions:
        step(row)
    return (time.perf_counter() - start) / len(actions)


def compare(config: Config, seconds: float) -> tuple[int, float, float]:
    """Returns the number of environments, and the agent steps per second of the environments and of the engines."""
    count = -(-per_process(config) // 2)  # an agent process steps one half while the other waits
    sides = bare(config, count), stepper(config, count)
    turns: tuple[list[float], list[float]] = ([], [])
    rng = np.random.default_rng(0)
    for step in sides:
        step(np.zeros(count, np.int32))  # starts the engines
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        actions = rng.integers(len(ORDERS), size=(_TURN, count), dtype=np.int32)
        for durations, step in zip(turns, sides, strict=True):
            durations.append(duration(step, actions))
    engine, env = (count / statistics.median(durations) for durations in turns)
    return count, env, engine


def _is_in_vizdoom(env: str) -> bool:
    """Whether an environment is one of gunreal's ViZDoom environments. Gymnasium only knows some environments."""
    try:
        return vizdoom_maze.__name__ in str(gymnasium.spec(env).entry_point)
    except gymnasium.error.Error:
        return False


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code."""
    try:
        parser = Parser("env_rate.py", __doc__)
        parser.add_argument(
            "--seconds",
            type=float,
            default=20.0,
            metavar="N",
            help="length of the measurement, in seconds (default: 20)",
        )
        options, config, _ = parser.parse_with_training_flags(["--env", "gunreal/NavMazeStatic-v0", *argv])
        check_positive("seconds", options.seconds)
        prepare(config)
        if not _is_in_vizdoom(config.env):
            raise ConfigError(f"{config.env} is not one of gunreal's ViZDoom environments; choose one with --env")
        count, env, engine = compare(config, options.seconds)
    except ConfigError as error:
        print(f"env_rate.py: {error}", file=sys.stderr)
        return 2
    print(f"{config.env} x{count}: {env:,.0f} agent steps/s, bare engine {engine:,.0f}, ratio {env / engine:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
