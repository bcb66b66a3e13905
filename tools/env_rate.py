"""Measures what a ViZDoom environment costs beside its engine: `python tools/env_rate.py [training flags]`.

Compared are the agent steps a second of a group of environments, stepped as an agent process steps it, and of as many
bare engines on the same map, which only act and copy their smallest picture. Both take random actions in this process,
in turns of some milliseconds. The rates are those of the median turn, which other processes hardly disturb.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence

import gymnasium
import numpy as np
from common.command_line import Parser, check_positive

from gunreal.config.schema import Config, ConfigError, per_process
from gunreal.envs import vizdoom_maze
from gunreal.envs.make import make
from gunreal.envs.vizdoom_maze import ORDERS, TICS
from gunreal.train import prepare

_TURN = 5  # steps of all environments


def stepper(config: Config, count: int) -> Callable[[np.ndarray], None]:
    """A function that does one agent step of each environment."""
    env = make(config, count)
    seeds = np.arange(count)
    done = np.ones(count, bool)

    def step(actions: np.ndarray) -> None:
        last = env.step(actions, done, seeds)
        np.logical_or(last.terminated, last.truncated, out=done)

    return step


def bare(config: Config, count: int) -> Callable[[np.ndarray], None]:
    """A function that does one agent step of each engine, and nothing else."""
    envs = [gymnasium.make(config.env, pixels=config.observation, **config.env_args).unwrapped for _ in range(count)]
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
    """Seconds of a step of all environments; `actions` is int32 `[steps, environments]`."""
    start = time.perf_counter()
    for row in actions:
        step(row)
    return (time.perf_counter() - start) / len(actions)


def compare(config: Config, seconds: float) -> tuple[int, float, float]:
    """The number of environments, and the agent steps/s of a group of them and of the bare engines."""
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


def main(argv: Sequence[str]) -> int:
    """The command; returns the exit code."""
    try:
        parser = Parser("env_rate.py", __doc__)
        parser.add_argument(
            "--seconds", type=float, default=20.0, metavar="N", help="seconds of measuring (default: 20)"
        )
        options, config, _ = parser.parse_with_training_flags(["--env", "gunreal/NavMazeStatic-v0", *argv])
        check_positive("seconds", options.seconds)
        prepare(config)
        if vizdoom_maze.__name__ not in str(gymnasium.spec(config.env).entry_point):
            raise ConfigError(f"{config.env} is none of gunreal's environments in ViZDoom; name one with --env")
        count, env, engine = compare(config, options.seconds)
    except ConfigError as error:
        print(f"env_rate.py: {error}", file=sys.stderr)
        return 2
    print(f"{config.env} x{count}: {env:,.0f} agent steps/s, bare engine {engine:,.0f}, ratio {env / engine:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
