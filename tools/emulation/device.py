"""Verifies and measures the emulator on a GPU, or on the default device of JAX."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from gunreal_emulator import VectorAtari, ffi
from gunreal_emulator.native import TAG
from gunreal_emulator.settings import games_of
from measuring.random_play import random_play

from gunreal.learning.devices import cores

CALL = 8  # steps in one call
SPREAD = 500  # largest number of agent steps that a console has played before a measurement
KINDS = 32  # different states of a game with which measurements begin


def compare(games: Sequence[str], consoles: int, steps: int, device: str) -> dict[str, Any]:
    """Plays random actions on the CPU and on a device, in one batch of all games, and compares all results.

    At the end, the states move from the device to the CPU, which plays a tenth of the steps again with them.

    Args:
      games: names of games.
      consoles: consoles of each game.
      steps: agent steps.
      device: of `VectorAtari`.

    Returns:
      "differences": the first difference of each game, or "". "frames", "ends" and "rewards": emulated frames, ends of
      episodes and steps with a reward. "seconds": duration.
    """
    start = time.perf_counter()
    options = {"full_action_space": True, "max_num_frames_per_episode": 600, "num_threads": cores()}
    cpu, other = (VectorAtari(games, consoles * len(games), device=d, **options) for d in ("cpu", device))
    found, rng = dict.fromkeys(games, ""), np.random.default_rng(0)
    counts = {"ends": 0, "rewards": 0}
    _note(found, consoles, "the reset", [cpu.reset(seed=1)[:1], other.reset(seed=1)[:1]])

    def play(number: int, what: str) -> None:
        for step in range(number):
            actions = rng.integers(cpu.single_action_space.n, size=cpu.num_envs)
            results = [env.step(actions)[:4] for env in (cpu, other)]
            _note(found, consoles, f"{what} {step}", results)
            counts["ends"] += int((results[0][2] | results[0][3]).sum())
            counts["rewards"] += int((results[0][1] != 0).sum())

    play(steps, "step")
    _note(found, consoles, "the memory at the end", [(cpu.ram(),), (other.ram(),)])
    cpu.restore(other.save())
    again = max(1, steps // 10)
    play(again, "after the exchange, step")
    cpu.close()
    other.close()
    frames = 4 * (steps + again) * consoles * len(games)
    return {"differences": found, "frames": frames, **counts, "seconds": time.perf_counter() - start}


def _note(found: dict[str, str], consoles: int, when: str, results: Sequence[Sequence[Any]]) -> None:
    """Writes the first difference of each game to `found`."""
    names = ("observation", "reward", "termination", "truncation") if len(results[0]) == 4 else ("array",)
    for name, a, b in zip(names, *results, strict=True):
        differ = (np.asarray(a) != np.asarray(b)).reshape(len(found), consoles, -1).any(-1)
        for game, of in zip(found, differ, strict=True):
            if of.any() and not found[game]:
                found[game] = f"{when}: {name} of {of.sum()} of {consoles} consoles"


def rate(
    games: Sequence[str], consoles: int, seconds: float, observations: bool, lanes: int = 0, spread: int = SPREAD
) -> dict[str, Any]:
    """Measures random play inside compiled programs of `CALL` steps, on the default device of JAX.

    Args:
      games: names of games, which share the consoles.
      consoles: number of consoles.
      seconds: duration of the measurement. As much time passes before it, in which a GPU raises its clock.
      observations: whether observations are made.
      lanes: number of consoles for each warp. 0 lets the library choose.
      spread: largest number of agent steps that a console has played at the start. Consoles at the same point of a game
        execute the same code, so they are faster together than those of a training.

    Returns:
      "frames": emulated frames per second. "steps": agent steps per second. "mebibytes": memory of the states.
    """
    env = ffi.DeviceAtari(games, consoles, observations=observations, lanes=lanes)
    play = random_play(env.step, env.num_actions, consoles, CALL)
    first = _repeated(tuple(games), spread, env)
    size = sum(part.nbytes for part in first)
    state, _ = play((first, jax.random.key(0)))  # compiles
    for _ in range(2):
        calls, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds or not calls:
            state, ends = play(state)
            ends.block_until_ready()
            calls += 1
    steps = calls * CALL * consoles / passed
    return {"frames": 4 * steps, "steps": steps, "mebibytes": size / 2**20}


def _repeated(games: tuple[str, ...], spread: int, env: ffi.DeviceAtari) -> ffi.AtariState:
    """Returns as many consoles as `env` has, with the states of `_spread`."""
    states, of = _spread(games, spread), games_of(len(games), env.num_envs)
    chosen = [states[game * KINDS + k % KINDS] for k, game in enumerate(of)]
    bytes_of_player = jax.eval_shape(env.init, np.zeros(env.num_envs, np.uint32)).players.shape[1]
    players = np.stack([state[:bytes_of_player] for state in chosen])
    return env.loaded(players, [state[bytes_of_player:] for state in chosen])


@functools.cache
def _spread(games: tuple[str, ...], spread: int) -> list[np.ndarray]:
    """Returns `KINDS` states of each game, uint8 `[bytes]`, after 0 to `spread` random agent steps on the CPU."""
    env = VectorAtari(games, KINDS * len(games), num_threads=cores())
    rng, found = np.random.default_rng(0), dict[int, np.ndarray]()
    env.reset(seed=0)
    for k in range(KINDS):
        saved = env.save()
        found |= {at: np.frombuffer(saved[at], np.uint8)[TAG:] for at in range(k, len(saved), KINDS)}
        for _ in range(-(-spread // KINDS)):
            env.step(rng.integers(env.single_action_space.n, size=env.num_envs))
    env.close()
    return [found[at] for at in range(len(found))]


def occupancy(device: Any) -> dict[str, int]:
    """Returns the registers and the bytes of local memory of a thread, and the threads and warps of a multiprocessor.

    Raises:
      RuntimeError: CUDA returned an error.
    """
    numbers = [ctypes.c_int() for _ in range(4)]
    library = ctypes.CDLL(str(ffi.compiled(ffi.architecture(device))))
    if error := library.atari_occupancy(*map(ctypes.byref, numbers)):
        raise RuntimeError(f"CUDA error {error}")
    registers, threads, blocks, local = (number.value for number in numbers)
    return {"registers": registers, "local_bytes": local, "threads": threads * blocks, "warps": threads * blocks // 32}
