"""The state of a device run survives its checkpoint."""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("jax")
import jax  # noqa: E402
from device_runs import configure, interface, keras_on_jax, make_program  # noqa: E402
from gunreal_emulator.build import source_hash  # noqa: E402

from gunreal.config.derived import Rates  # noqa: E402
from gunreal.config.schema import ConfigError  # noqa: E402
from gunreal.device import saving, store  # noqa: E402
from gunreal.device.environment import open_environment  # noqa: E402
from gunreal.tasks.value_replay import ValueReplay  # noqa: E402

pytestmark = keras_on_jax


@functools.cache
def begin(**options):
    """A program and its interface."""
    config = configure(tasks=("vr",), **{"replay_size": 30, **options})
    program, _ = make_program(config, tasks=[ValueReplay()])
    return program, interface(config)


@functools.cache
def played():
    """A program, its interface, its state after five turns, and what is saved of that."""
    program, spec = begin()
    loop = program.start()
    for number in range(5):
        loop, _ = program.turn(loop, number, Rates(0.0, 0.0))
    return program, spec, loop, as_numpy(saving.arrays(program, spec, loop))


def as_numpy(arrays):
    return {name: np.asarray(array) for name, array in arrays.items()}


def assert_same(loop, other):
    for mine, yours in zip(jax.tree.leaves(loop), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(mine, yours)


def test_it_is_restored_as_it_was():
    program, spec, loop, saved = played()
    assert_same(saving.restored(program, spec, saved), loop)


def test_of_a_large_store_the_newest_rollouts_are_saved(monkeypatch):
    program, spec, loop, _ = played()
    monkeypatch.setattr(saving, "_LARGEST", 100)
    saved = as_numpy(saving.arrays(program, spec, loop))
    assert saved["device.store['age']"].shape[0] == store.ring_size(spec, 0, program.block)
    restored = saving.restored(program, spec, saved)
    assert restored.store["frame"].sharding == program.places.store["frame"]  # one device may not hold all
    end = int(loop.store["end"])
    assert int(restored.store["start"]) == end - saved["device.store['age']"].shape[0] + 1
    steps = np.arange(end - spec.t_max, end)[None]
    for name in ("frame", "reward", "flags"):
        np.testing.assert_array_equal(
            store.take(restored.store, name, 0, steps), store.take(loop.store, name, 0, steps)
        )
    _, turn = program.turn(restored, 5, Rates(0.0, 0.0))
    assert len(turn.metrics) == 1


def test_a_large_store_without_a_replay_is_saved_as_it_is(monkeypatch):
    program, _ = make_program(configure())
    loop = program.start()
    monkeypatch.setattr(saving, "_LARGEST", 100)
    assert saving.arrays(program, interface(configure()), loop)["device.store['frame']"] is loop.store["frame"]


def test_another_size_of_the_replay_is_no_hindrance():
    larger, spec = begin(replay_size=50)
    *_, loop, saved = played()
    restored = saving.restored(larger, spec, saved)
    assert len(restored.store["age"]) == store.ring_size(spec, 50, larger.block)
    steps = np.arange(int(loop.store["end"]))[None]  # all that there were
    for name in ("frame", "reward", "flags", "version"):
        found, expected = (store.take(each.store, name, 0, steps) for each in (restored, loop))
        np.testing.assert_array_equal(found, expected)


def test_another_number_of_agents_is_refused():
    with pytest.raises(ConfigError, match="does not fit this device run at .*; start a new run"):
        saving.restored(*begin(agents=4), played()[-1])


def test_consoles_of_another_emulator_are_refused(monkeypatch):
    program, spec, loop, without = played()
    monkeypatch.setattr(program, "env_version", "0123")
    saved = as_numpy(saving.arrays(program, spec, loop))
    assert_same(saving.restored(program, spec, saved), loop)
    message = "another version of the emulator; resume it with the version of gunreal that"
    with pytest.raises(ConfigError, match=message):
        saving.restored(program, spec, without)
    monkeypatch.setattr(program, "env_version", "4567")
    with pytest.raises(ConfigError, match=message):
        saving.restored(program, spec, saved)


def test_the_version_is_that_of_the_environment():
    assert begin()[0].env_version == ""  # no part of a checkpoint depends on the library
    assert open_environment(configure(env="ALE/Pong-v5", env_args={}), 1).version == source_hash()
