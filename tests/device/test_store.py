"""The store on the device gives back what the replay rings in NumPy do."""

from __future__ import annotations

import numpy as np
import pytest

from gunreal.experience import replay
from gunreal.experience.spec import Spec

jax = pytest.importorskip("jax")
from gunreal.device import store  # noqa: E402

GROUPS, AGENTS, BLOCK = 2, 6, 2
SPEC = Spec((1, 3, 2), 3, "uint8", 4, t_max=6, state=5)


@pytest.fixture(scope="module")
def filled():
    """A store after more steps than it holds, and all steps in NumPy by name, `[agents, steps, ...]`."""
    rng, rows, count = np.random.default_rng(0), store.ring_size(SPEC, 0, BLOCK), 14
    age = np.zeros((AGENTS, count), np.int64)
    for t in range(1, count):
        age[:, t] = np.where(rng.random(AGENTS) < 0.3, 0, age[:, t - 1] + 1)
    steps = {
        "frame": rng.integers(256, size=(AGENTS, count, *SPEC.frame)).astype(np.uint8),
        "age": age.astype(np.uint8),
        "reward": rng.normal(size=(AGENTS, count)).astype(np.float32),
        "state": rng.normal(size=(AGENTS, count, SPEC.state)).astype(np.float32),
    }
    kept = store.blank(SPEC, rows, GROUPS, AGENTS)
    append = jax.jit(store.append)
    for first in range(0, count, BLOCK):
        block = {name: np.swapaxes(array[:, first : first + BLOCK], 0, 1) for name, array in steps.items()}
        kept = append(kept, block | {"age": block["age"].astype(np.int32)}, first)
    return kept, steps, count


def test_the_ring_holds_a_rollout_and_the_stack_before_it():
    assert store.ring_size(SPEC, 0, BLOCK) == 8 and store.ring_size(SPEC, 100, 3) == 105
    assert store.ring_size(SPEC._replace(stack=1), 0, 6) == 12  # the row before it, for recurrent networks
    assert store.ring_size(SPEC, 9, BLOCK) == 12  # nine steps, the state after them, and two rows for its stack


@pytest.mark.parametrize("group", range(GROUPS))
def test_observations_are_stacked_as_in_the_rings(filled, group):
    kept, steps, count = filled
    first = count - SPEC.t_max
    stacked = jax.jit(lambda kept, steps: replay.observations(store.read(kept, group), SPEC, steps))
    found = stacked(kept, np.arange(first, count)[None])
    for place, agent in enumerate(range(group, AGENTS, GROUPS)):
        expected = np.empty((SPEC.t_max, *SPEC.observation), np.uint8)
        replay.gather(steps, SPEC, np.full(SPEC.t_max, agent), np.arange(first, count), expected)
        np.testing.assert_array_equal(found[place], expected)


@pytest.mark.parametrize("rows", [10, 8, 4])
def test_a_store_of_another_size_has_the_newest_steps(filled, rows):
    kept, steps, count = filled
    other = store.resized(kept, SPEC, rows)
    assert int(other["end"]) == count and len(other["age"]) == rows
    assert int(other["start"]) == (0 if rows >= 8 else count - rows + SPEC.stack - 1)
    wanted = np.arange(count - min(rows, 8), count)
    for name in ("reward", "frame"):
        found = store.take(other, name, 1, wanted[None])
        np.testing.assert_array_equal(found, steps[name][1::GROUPS][:, wanted])
    assert other["version"][(count - 1) % rows] == count - BLOCK
