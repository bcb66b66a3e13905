"""Wrong use of the emulator: one clear error, and neither a crash nor a leak."""

import copy
import gc
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from gunreal_emulator import AtariVectorEnv, VectorAtari, console
from gunreal_emulator.ale import OwnALE
from gunreal_emulator.native import TAG

DROPPED = """
import gc, resource, threading
import numpy as np
from pathlib import Path
from gunreal_emulator import AtariVectorEnv, VectorAtari
from gunreal_emulator.ale import OwnALE

def use(n):
    for _ in range(n):
        for make in (VectorAtari, AtariVectorEnv):
            env = make("pong", 2, num_threads=2)
            env.reset(seed=1)
            env.send(np.zeros(2, int))  # is still running when it is dropped
            del env
        OwnALE("pong").reset_game()
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return len(list(Path("/proc/self/task").iterdir())), pages * resource.getpagesize() / 2**20

threads, before = use(50)
print(use(400)[0] - threads, use(400)[1] - before < 20)
"""


def test_what_is_dropped_is_freed_with_its_threads():
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True)
    assert done.stdout == "0 True\n", done.stderr


def test_a_dropped_game_stays_as_long_as_its_consoles():
    from gunreal_emulator.console import loaded_game

    env = VectorAtari("pong", 2, num_threads=2)
    env.reset(seed=1)
    states = env.save()
    loaded_game.cache_clear()
    gc.collect()
    env.step(np.zeros(2, int))
    after = env.ram()
    env.restore(states)
    env.step(np.zeros(2, int))
    np.testing.assert_array_equal(env.ram(), after)


@pytest.mark.parametrize("make", [VectorAtari, AtariVectorEnv])
@pytest.mark.parametrize("threads", [0, 2])
def test_an_environment_that_several_threads_use_is_one_error(make, threads):
    env = make("pong", 8, num_threads=threads)
    env.reset(seed=1)
    begin, errors, steps = threading.Barrier(4), [], []

    def work():
        begin.wait()
        for _ in range(100):
            try:
                env.step(np.zeros(8, int))
                steps.append(1)
            except RuntimeError as error:
                errors.append(str(error))

    workers = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not any(worker.is_alive() for worker in workers) and steps
    assert set(errors) == {f"another thread is using this {make.__name__}; give each thread its own"}
    env.step(np.zeros(8, int))


@pytest.mark.parametrize("make", [VectorAtari, OwnALE, lambda game: AtariVectorEnv(game, 1)])
@pytest.mark.parametrize("use", [pickle.dumps, copy.copy, copy.deepcopy])
def test_pickling_names_the_reason(make, use):
    with pytest.raises(TypeError, match="can't be pickled or copied, because its consoles are in the memory"):
        use(make("pong"))


@pytest.mark.parametrize("action", [-1, 18, 40, 99, 2**40, 1.0, None, "1", True])
def test_an_action_that_does_not_exist_is_refused(action):
    ale = OwnALE("pong")
    ale.reset_game()
    with pytest.raises(ValueError, match="must be a whole number from 0 to 17"):
        ale.act(action)
    with pytest.raises(ValueError, match="must be a whole number from 0 to 17"):
        ale.play([0, action], np.empty((210, 160), np.uint8))


READ_ONLY = np.zeros((210, 160), np.uint8)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize("screen", [
    READ_ONLY, np.empty((210, 159), np.uint8), np.empty((1, 160), np.uint8), np.empty(210 * 160, np.uint8),
    np.empty((210, 160, 1), np.uint8), np.empty((210, 160), np.float32), np.empty((210, 320), np.uint8)[:, ::2],
])  # fmt: skip
def test_a_screen_that_cannot_be_written_to_is_refused(screen):
    ale = OwnALE("pong")
    ale.reset_game()
    with pytest.raises(ValueError, match=r"give (contiguous uint8 of shape \(210, 160\)|an array that may be written)"):
        ale.play([0], screen)


def of_vector(game="pong", mode=None, difficulty=0):
    """A state, and the function that restores it."""
    env = VectorAtari(game, mode=mode, difficulty=difficulty)
    env.reset(seed=1)
    return env.save()[0], lambda state: env.restore([state])


def of_ale(*options):
    ale = OwnALE(*options or ("pong",))
    return ale.cloneState(), ale.restoreState


both = pytest.mark.parametrize("make", [of_vector, of_ale])


@both
def test_a_state_of_another_game_mode_difficulty_or_version_is_refused(make, monkeypatch):
    state, restore = make()
    noise = np.random.default_rng(0).bytes(len(state))
    others = [noise, b"", "text", None, *(make(*of)[0] for of in (("breakout",), ("pong", 1), ("pong", 0, 1)))]
    with monkeypatch.context() as patch:
        patch.setattr(console, "source_hash", lambda: "another version")
        console.loaded_game.cache_clear()
        others.append(make()[0])
    console.loaded_game.cache_clear()
    for other in others:
        with pytest.raises(ValueError, match="a state is of another game, mode, difficulty or version"):
            restore(other)
    restore(state)
    for states in (None, [], b""):
        with pytest.raises(ValueError, match="give a state for each"):
            VectorAtari("pong").restore(states)


@both
@pytest.mark.parametrize("place", [TAG, -1])
def test_a_damaged_state_is_refused(make, place):
    """The emulator trusts what is in a state: a wrong place of its screen would end the process."""
    state, restore = make()
    damaged = bytearray(state)
    damaged[place] ^= 1
    with pytest.raises(ValueError, match="a state is damaged"):
        restore(bytes(damaged))
