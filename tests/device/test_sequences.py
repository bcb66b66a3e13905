"""The tasks of device runs learn from the steps of their replay, with bootstraps of the states after them."""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("jax")
import jax  # noqa: E402
from device_runs import configure, filled, interface, keras_on_jax, value_of  # noqa: E402

from gunreal.device import sequences, store  # noqa: E402
from gunreal.experience.replay import FIRST, RESET, TRUNCATED  # noqa: E402
from gunreal.experience.segment import Layout  # noqa: E402
from gunreal.experience.sequences import uniform_sequences  # noqa: E402
from gunreal.tasks.value_replay import ValueReplay  # noqa: E402

pytestmark = keras_on_jax

SIZE = 12
WEIGHTS = (np.float32(3),)


class Probe(ValueReplay):
    """Shows what it is given."""

    def sample(self, replay, draws):
        return uniform_sequences(replay, draws)

    def targets(self, replay, chosen, bootstraps):
        return {"first": chosen.first, "length": chosen.length, "bootstraps": bootstraps}


def predict(weights, observations, past, head):
    """Depends on the observation and on the past."""
    assert head == "vr"
    return (value_of(observations) + weights[0] + 10 * past.last_action[:, 0] + past.state[:, 0],)


@functools.cache
def play(blocks):
    """A store after `2 * blocks` steps, and these steps of the second of two groups, `[n, steps, ...]`."""
    config = configure(device_batches=2)
    spec = interface(config, state=2)
    _, kept, steps = filled(config, store.ring_size(spec, SIZE, 2), blocks, state=2, weight=3)
    return spec, kept, steps


@functools.cache
def compiled(tasks, spec):
    """`sequences.gather` for the second group."""
    return jax.jit(lambda kept, key: sequences.gather(tasks, spec, SIZE, predict, WEIGHTS, kept, 1, key))


def draw(spec, kept, key, count=1):
    return jax.device_get(compiled((Probe(),) * count, spec)(kept, jax.random.key(key)))


def test_sequences_come_from_the_newest_steps_with_what_they_need():
    spec, kept, steps = play(11)
    end = 22 - 1  # the newest step is the state after the newest sequence
    seen, cut = set(), 0
    for key in range(20):
        batch = draw(spec, kept, key)
        probe = batch["vr"]
        for agent, (first, length) in enumerate(zip(probe["first"], probe["length"], strict=True)):
            rows = {name: array[agent] for name, array in steps.items()}
            assert end - SIZE <= first < end and 1 <= length <= spec.t_max and first + length <= end
            seen.add(int(first))
            flags = rows["flags"][first : first + length]
            assert not flags[0] & RESET and not (flags[:-1] & TRUNCATED).any()
            cut += int(length < spec.t_max)
            padded = np.minimum(first + np.arange(spec.t_max), first + length - 1)
            np.testing.assert_array_equal(probe["observations"][agent], rows["frame"][padded])
            np.testing.assert_array_equal(probe["mask"][agent, :length], flags & RESET == 0)
            assert not probe["mask"][agent, length:].any()
            after, past = first + length, probe["past"]
            new = rows["flags"][after] & FIRST
            action = -1 if new else rows["action"][after - 1]
            value = value_of(rows["frame"][after : after + 1])[0] + 3 + 10 * action + rows["state"][after, 0]
            np.testing.assert_allclose(probe["bootstraps"][agent], value, rtol=1e-5)
            np.testing.assert_array_equal(past.state[agent], rows["state"][first])
    assert len(seen) == SIZE and cut


def test_tasks_read_the_arrays_of_the_rings():
    """With the shapes and types of `Replay.get`, on which a task relies."""
    spec, kept, steps = play(11)
    long = kept | {"age": kept["age"] + 250}  # of episodes that are longer than the rings count
    replay = sequences.replay(long, spec, SIZE, 1)
    rings = Layout(spec, agents=1, groups=1, replay_size=SIZE, extra={}, slots=1, mailboxes={}).arrays()
    first = np.array([12, 18, 15, 10], np.int32)
    rows = np.arange(4)[:, None], first[:, None] + np.arange(3)
    expected = {name: array[rows] for name, array in steps.items()} | {"version": rows[1] // 2}
    expected["age"] = np.minimum(expected["age"] + 250, 255)
    assert expected["age"].min() < 255 == expected["age"].max()
    for name in ("frame", "action", "reward", "flags", "age", "log_mu", "value", "version"):
        found, window = replay.get(name, first, 3), replay.window(name)
        np.testing.assert_array_equal(found, expected[name], err_msg=name)
        assert found.dtype == window.dtype == rings[name][1] and window.shape[:2] == (4, SIZE), name


@pytest.mark.parametrize("blocks", [1, 2])
def test_there_is_no_sequence_before_the_first_rollout_is_complete(blocks):
    spec, kept, _ = play(blocks)  # t_max is 4, and the last of four steps is the state after a sequence
    probe = draw(spec, kept, 0)["vr"]
    assert not probe["length"].any() and not probe["mask"].any()


def test_each_task_draws_its_own_sequences():
    spec, kept, _ = play(11)
    second = draw(spec, kept, 0, 2)["vr"]  # the entry of the last task with this name
    assert not np.array_equal(second["first"], draw(spec, kept, 0)["vr"]["first"])
