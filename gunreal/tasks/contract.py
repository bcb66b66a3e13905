"""The contract of auxiliary tasks as a test: `gunreal.testing.check_task`."""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.config.packages import is_installed
from gunreal.config.plugins import calling, expect, expect_plugin
from gunreal.config.process import python, told
from gunreal.config.schema import ConfigError
from gunreal.experience.replay import TERMINATED, TRUNCATED, Replay
from gunreal.experience.segment import Segment
from gunreal.experience.sequences import DRAWS, Drawn, Sequences
from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import synthetic_segment
from gunreal.learning import devices
from gunreal.learning.architecture import Architecture
from gunreal.learning.registry import named
from gunreal.learning.task import AuxiliaryTask, of_tasks
from gunreal.tasks import calls
from gunreal.tasks.loss_contract import Learning, drawn
from gunreal.tasks.recorded import recorded_fields
from gunreal.tasks.registry import TASK

IMAGES = Spec((1, 36, 36), 2, "uint8", num_actions=3, t_max=6)
_STATE, _VECTORS = 64, 3  # floats of a recurrent network, and beside its images
_SEEN = ("hidden", "conv", "both")

# Does what an agent process does with a task, with all frameworks blocked.
_AGENT = """
sys.modules.update(dict.fromkeys(("keras", "tensorflow", "jax", "torch")))
task, spec, bootstrap = pickle.load(sys.stdin.buffer)
import numpy as np
from gunreal.tasks.calls import target_arrays
target_arrays(task, spec, bootstrap)
"""


def check_task(
    task: AuxiliaryTask | type[AuxiliaryTask],
    spec: Spec = IMAGES,
    *,
    network: str | Architecture | None = None,
    **options: Any,
) -> None:
    """Checks on random experience that a task follows every rule of `gunreal.learning.task`.

    The check takes a few seconds. It builds a small network with Keras's current backend and does one update. With
    images it does the same with a recurrent network, unless `task.check` rejects that.

    Args:
      task: the class of the task, or an instance.
      spec: interface of the environment. The default is small gray images.
      network: network to check the task with, such as "impala", instead of the small ones. It sets the spec's `state`.
      **options: options of the task, if `task` is a class.

    Raises:
      AssertionError: the task breaks a rule. The message describes the first broken rule in one line.
      ConfigError: there is no such network.
      ValueError: `task.check` or the network rejects `spec`.
    """
    task = expect_plugin(task, AuxiliaryTask, options, TASK.reserved)
    importable = type(task).__module__ != "__main__"
    expect(importable, "other processes cannot import the class: define it in a module of its own")
    copy = pickle.loads(pickle.dumps(task))
    expect(copy == task, "the task is not equal to its pickled copy: make it a frozen dataclass of plain values")
    expect(task.features in _SEEN, f"features is {task.features!r}: choose one of {', '.join(_SEEN)}")
    devices.select_any()
    if isinstance(network, str):
        network = named(network)
    if network is not None:
        spec = spec._replace(state=network.state())
    spec = of_tasks(spec, [task])
    for count in ("replays", "updates"):
        value = getattr(task, count)
        expect(isinstance(value, int) and value >= 1, f"{count} is {value!r}: choose an int of 1 or more")
    task.check(spec)
    try:
        recorded_fields([task], spec)
        _check_sampling(task, spec)
        bootstrap_shape = _check_learning(task, spec, network)
        recurrent = spec._replace(state=_STATE, vectors=_VECTORS if spec.bonus_steps == 1 else 0)
        if network is None and spec.is_image and not spec.state and _fits(task, recurrent):
            _check_learning(task, recurrent)
        _check_elsewhere(task, spec, bootstrap_shape)
    except ConfigError as error:  # of one of its methods
        raise AssertionError(str(error)) from error


def _fits(task: AuxiliaryTask, spec: Spec) -> bool:
    try:
        task.check(of_tasks(spec, [task]))
    except ValueError:
        return False
    return True


def _check_learning(task: AuxiliaryTask, spec: Spec, network: Architecture | None = None) -> tuple[int, ...] | None:
    """Targets, loss and gradient. Returns the shape of a bootstrap, or None without one."""
    learning = Learning(task, spec, network)
    bootstrap = learning.bootstrap(_experience(task, spec, spec.t_max), np.zeros(1, np.int64))
    bootstrap_shape = None if bootstrap is None else bootstrap.shape[1:]
    _check_targets(task, spec, bootstrap_shape)
    learning.check(_experience(task, spec))
    return bootstrap_shape


def _check_elsewhere(task: AuxiliaryTask, spec: Spec, bootstrap_shape: tuple[int, ...] | None) -> None:
    """Sequences and targets in agent processes, which have no Keras, and in device runs, which are compiled by JAX."""
    _check_agent_process(task, spec, bootstrap_shape)
    if is_installed("jax"):
        for steps in (spec.t_max - 1, 2 * spec.t_max, 100 * spec.t_max):
            _check_jax(task, _experience(task, spec, max(1, steps)), bootstrap_shape)


def _experience(task: AuxiliaryTask, spec: Spec, steps: int | None = None, seed: int = 0) -> Segment:
    return synthetic_segment(spec, task.record(spec), 100 * spec.t_max if steps is None else steps, seed)


def _check_sampling(task: AuxiliaryTask, spec: Spec) -> None:
    """Sequences lie in the ring, have an allowed length and end with a truncated step, however full the ring is."""
    limit = task.length(spec.t_max)
    expect(isinstance(limit, int) and limit >= 1, f"length() is {limit!r}: return an int of 1 or more")
    for steps in (1, 2, spec.t_max, 3 * spec.t_max, 100 * spec.t_max):
        segment = _experience(task, spec, steps)
        replay, sequences = drawn(task, segment, 100)
        rows = replay.get("flags", sequences.first, limit) & TRUNCATED != 0
        passed = (rows & (np.arange(limit) < sequences.length[:, None] - 1)).any(1)
        for first, length in zip(*(part[passed] for part in sequences[:2]), strict=True):
            where = f"sample() returned steps {first} to {first + length - 1}"
            expect(False, f"{where}, past a truncated step: end it there (Replay.sequence_length)")
    expect(len(sequences.first), f"sample() found nothing in {replay.end - replay.oldest} random steps")
    _, again = drawn(task, segment, 100)
    same = all(map(np.array_equal, sequences, again))
    expect(same, "sample() returned other sequences for the same draws: use no other random numbers")
    if task.prioritized:
        priorities = segment.arrays[f"{task.name}.priority"]
        priorities[...] = priorities[:, ::-1].copy()
        found = sequences, drawn(task, segment, 100)[1]
        moved = not np.array_equal(*(of.first for of in found))
        expect(moved, "sample() does not depend on the priorities: use prioritized_sequences(replay, draws, self.name)")


def _check_targets(task: AuxiliaryTask, spec: Spec, bootstrap_shape: tuple[int, ...] | None) -> None:
    """Targets are finite, each agent's depend on its own replay, and they end with a termination."""
    segment = _experience(task, spec)
    replay, sequences = drawn(task, segment, 200)
    count = len(sequences.first)
    bootstraps = None if bootstrap_shape is None else np.ones((count, *bootstrap_shape), np.float32)
    targets, again = (calls.targets(task, replay, sequences, bootstraps) for _ in range(2))
    for name, array in targets.items():
        finite = array.dtype.kind != "f" or np.isfinite(array).all()
        expect(finite, f"target {name!r} is not finite")
        same = name in again and np.array_equal(array, again[name])
        expect(same, f"target {name!r} differs in a second call: use no random numbers")
    ends = 0
    for place in range(count):
        one = type(sequences)(*(part[place : place + 1] for part in sequences))
        bootstrap = None if bootstraps is None else bootstraps[:1]
        alone = calls.targets(task, segment.replay(np.zeros(1, int)), one, bootstrap)
        for name, array in targets.items():
            same = name in alone and alone[name].shape[1:] == array.shape[1:]
            same = same and alone[name].dtype == array.dtype and np.allclose(alone[name][0], array[place], atol=1e-6)
            expect(same, f"target {name!r} of an agent depends on the other agents: keep to its row of [N, ...]")
        if ends < 10:
            ends += _check_episode_end(task, segment, one, alone, bootstrap)


def _without_future(segment: Segment, first: int) -> Segment:
    """A copy of `segment` with different experience from step `first` on."""
    layout, end = segment.layout, int(segment.end[0])
    copy = synthetic_segment(layout.spec, layout.extra, end, seed=1)
    kept = np.arange(max(0, end + 1 - layout.ring), first) % layout.ring
    for name in layout.rows():
        copy.arrays[name][:, kept] = segment.arrays[name][:, kept]
    return copy


def _check_episode_end(
    task: AuxiliaryTask, segment: Segment, sequence: Drawn, targets: Mapping[str, np.ndarray], bootstrap: Any
) -> bool:
    """Checks that experience and bootstraps after a termination do not change the targets up to it.

    Returns:
      Whether the sequence has a termination.
    """
    agent = np.zeros(1, int)
    first, length = int(sequence.first[0]), int(sequence.length[0])
    (terminated,) = np.nonzero(segment.replay(agent).get("flags", first, length)[0] & TERMINATED)
    if not len(terminated):
        return False
    steps = int(terminated[0]) + 1
    other = _without_future(segment, first + steps + 1)  # the next row holds the episode's last observation
    changed = calls.targets(task, other.replay(agent), sequence, None if bootstrap is None else bootstrap + 9)
    for name, array in targets.items():
        if array.shape[1:2] == (task.length(other.layout.spec.t_max),):
            same = np.array_equal(array[:, :steps], changed[name][:, :steps])
            expect(same, f"target {name!r} depends on what follows an episode's termination, where the discount is 0")
    return True


def _check_jax(task: AuxiliaryTask, segment: Segment, bootstrap_shape: tuple[int, ...] | None) -> None:
    """The methods of agent processes can be compiled by JAX, and do there what they do in NumPy."""
    import jax
    from jax import numpy as jnp

    count, ring = 200, segment.layout.ring
    replay = segment.replay(np.zeros(count, int))
    rng = np.random.default_rng(2)
    draws = rng.random((count, DRAWS), np.float32)
    bootstraps = None if bootstrap_shape is None else rng.standard_normal((count, *bootstrap_shape), np.float32)

    def read(name: str, steps: Any) -> Any:
        return jnp.asarray(segment.arrays[name][0])[jnp.broadcast_to(steps, (count, steps.shape[1])) % ring]

    def compiled(end: Any, oldest: Any, draws: Any, bootstraps: Any) -> tuple[Any, dict[str, Any]]:
        compiled = Replay(read, jnp, replay.spec, replay.size, end, oldest, replay.names)
        with calling("sample() in JAX"):
            first, length, *weights = task.sample(compiled, draws)
        first = jnp.where(length > 0, first, oldest)
        with calling("targets() in JAX"):
            targets = task.targets(compiled, Sequences(first, length), bootstraps)
        return (first, length), {**targets, **({"weight": weights[0]} if weights else {})}

    found, targets = jax.jit(compiled)(jnp.int32(replay.end), jnp.int32(replay.oldest), draws, bootstraps)
    sequences = calls.sample(task, replay, draws)
    same = np.all([one == two for one, two in zip(found, sequences[:2], strict=True)], axis=0)
    # The sums of priorities are rounded in other ways, and then another step is drawn now and then.
    expect(same.mean() > 0.97, "sample() returns other sequences in JAX than in NumPy for the same draws")
    for name, array in calls.targets(task, replay, sequences, bootstraps).items():
        expect(name in targets, f"target {name!r} is missing in JAX")
        here, there = (np.asarray(x)[same & (sequences.length > 0)] for x in (array, targets[name]))
        kinds = here.dtype == there.dtype and here.shape == there.shape
        expect(kinds, f"target {name!r} is {there.dtype} {there.shape} in JAX, but {here.dtype} {here.shape} in NumPy")
        expect(np.allclose(here, there, rtol=1e-4, atol=1e-5), f"target {name!r} differs between JAX and NumPy")


def _check_agent_process(task: AuxiliaryTask, spec: Spec, bootstrap_shape: tuple[int, ...] | None) -> None:
    given = told((task, spec, bootstrap_shape))
    done = subprocess.run(python(_AGENT), input=given, capture_output=True, check=False)
    *_, error = done.stderr.decode(errors="replace").splitlines() or ["no error message"]
    fix = "; import Keras inside head, loss and bootstrap" if "halted" in error else ""
    expect(done.returncode == 0, f"sample() and targets() must work without Keras, TensorFlow and JAX: {error}{fix}")
