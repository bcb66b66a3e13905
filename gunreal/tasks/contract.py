"""The contract of auxiliary tasks as a test: `gunreal.testing.check_task`."""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.config.plugins import calling, lost_option
from gunreal.config.process import python, told
from gunreal.config.schema import ConfigError
from gunreal.experience.replay import TERMINATED, TRUNCATED
from gunreal.experience.segment import Segment
from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import synthetic_segment
from gunreal.learning import devices
from gunreal.learning.task import RESERVED
from gunreal.tasks.base import AuxiliaryTask, ReplaySequence
from gunreal.tasks.batch_contract import broken_rule, has_batch_form
from gunreal.tasks.loss_contract import Learning, drawn, expect
from gunreal.tasks.recorded import recorded_fields
from gunreal.tasks.registry import TASK

IMAGES = Spec((1, 36, 36), 2, "uint8", num_actions=3, t_max=6)
_STATE = 64  # floats of a recurrent network
_SEEN = ("hidden", "conv", "both")

# Does what an agent process does with a task, with all frameworks blocked.
_AGENT = """
sys.modules.update(dict.fromkeys(("keras", "tensorflow", "jax", "torch")))
task, spec, bootstrap = pickle.load(sys.stdin.buffer)
import numpy as np
from gunreal.tasks.calls import target_arrays
target_arrays(task, spec, bootstrap)
"""


def check_task(task: AuxiliaryTask | type[AuxiliaryTask], spec: Spec = IMAGES, **options: Any) -> None:
    """Checks on random experience that a task follows every rule of `gunreal.tasks.base`.

    The check takes a few seconds. It builds a small network with Keras's current backend and does one update. With
    images it does the same with a recurrent network, unless `task.check` rejects that.

    Args:
      task: the class of the task, or an instance.
      spec: interface of the environment. The default is small gray images.
      **options: options of the task, if `task` is a class.

    Raises:
      AssertionError: the task breaks a rule. The message describes the first broken rule in one line.
      ValueError: `task.check` rejects `spec`, or its images are too small for the network.
    """
    cls = task if isinstance(task, type) else type(task)
    expect(issubclass(cls, AuxiliaryTask), "the class does not inherit from gunreal.AuxiliaryTask")
    expect(not (lost := lost_option(cls, AuxiliaryTask)), lost)
    expect(cls.__module__ != "__main__", "other processes cannot import the class: define it in a module of its own")
    if isinstance(task, type):
        task = task(**options)
    copy = pickle.loads(pickle.dumps(task))
    expect(copy == task, "the task is not equal to its pickled copy: make it a frozen dataclass of plain values")
    name = getattr(task, "name", None)
    usable = isinstance(name, str) and name.isidentifier() and name not in TASK.reserved
    expect(usable, f"name is {name!r}: choose an identifier other than {', '.join(TASK.reserved)}")
    expect(task.features in _SEEN, f"features is {task.features!r}: choose one of {', '.join(_SEEN)}")
    task.check(spec)
    devices.select_any()
    try:
        recorded_fields([task], spec)
        _check_sampling(task, spec)
        _check_learning(task, spec)
        recurrent = spec._replace(state=_STATE)
        if spec.is_image and not spec.state and _fits(task, recurrent):
            _check_learning(task, recurrent)
    except ConfigError as error:  # of one of its methods
        raise AssertionError(str(error)) from error


def _fits(task: AuxiliaryTask, spec: Spec) -> bool:
    try:
        task.check(spec)
    except ValueError:
        return False
    return True


def _check_learning(task: AuxiliaryTask, spec: Spec) -> None:
    learning = Learning(task, spec)
    segment = _experience(task, spec, spec.t_max)
    bootstrap = learning.bootstrap(segment, np.zeros(1, np.int64))
    bootstrap_shape = None if bootstrap is None else bootstrap.shape[1:]
    _check_targets(task, spec, bootstrap_shape)
    if has_batch_form(task):
        for steps in (spec.t_max - 1, 2 * spec.t_max, 100 * spec.t_max):
            problem = broken_rule(task, _experience(task, spec, steps), bootstrap_shape)
            expect(problem is None, problem or "")
    _check_agent_process(task, spec, bootstrap_shape)
    learning.check(_experience(task, spec))


def _experience(task: AuxiliaryTask, spec: Spec, steps: int | None = None, seed: int = 0) -> Segment:
    return synthetic_segment(spec, task.record(spec), 100 * spec.t_max if steps is None else steps, seed)


def _check_sampling(task: AuxiliaryTask, spec: Spec) -> None:
    """Sequences lie in the ring, have an allowed length and end with a truncated step, however full the ring is."""
    empty = task.sample(_experience(task, spec, 0).agent(0), np.random.default_rng(0))
    expect(empty is None, f"sample() returned {empty} for an empty ring: return None")
    limit = task.length(spec.t_max)
    expect(isinstance(limit, int) and limit >= 1, f"length() is {limit!r}: return an int of 1 or more")
    for steps in (1, 2, spec.t_max, 3 * spec.t_max, 100 * spec.t_max):
        replay = _experience(task, spec, steps).agent(0)
        for first, length in drawn(task, replay, 100):
            where = f"sample() returned steps {first} to {first + length - 1}"
            expect(1 <= length <= limit, f"{where}: the length is {length}, but length() allows 1 to {limit}")
            complete = replay.oldest <= first and first + length <= replay.end
            expect(complete, f"{where}: only steps {replay.oldest} to {replay.end - 1} are complete")
            passed = replay.get("flags", first, length - 1) & TRUNCATED
            expect(not passed.any(), f"{where}, past a truncated step: end it there (Replay.sequence_length)")
    expect(drawn(task, replay, 100), f"sample() found nothing in {len(replay)} random steps")


def _check_targets(task: AuxiliaryTask, spec: Spec, bootstrap_shape: tuple[int, ...] | None) -> None:
    """Targets have fixed names, shapes and types, are finite, and do not depend on what follows a termination."""
    segment = _experience(task, spec)
    bootstrap = None if bootstrap_shape is None else np.ones(bootstrap_shape, np.float32)
    known: dict[str, Any] | None = None
    ends = 0
    for sequence in drawn(task, segment.agent(0), 200):
        with calling("targets()"):
            targets = task.targets(segment.agent(0), sequence, bootstrap)
        kind = type(targets).__name__
        expect(isinstance(targets, Mapping), f"targets() returned a {kind}: return a dict of NumPy arrays")
        for name in RESERVED:
            expect(name not in targets, f"targets() returned {name!r}, a name that is reserved: choose another name")
        for name, array in targets.items():
            expect(isinstance(array, np.ndarray), f"target {name!r} is a {type(array).__name__}: return a NumPy array")
            finite = array.dtype.kind != "f" or np.isfinite(array).all()
            expect(finite, f"target {name!r} of steps {sequence} is not finite")
            expect(array.dtype != np.float64, f"target {name!r} is float64: return float32")
            expect(array.dtype.kind in "biuf", f"target {name!r} is {array.dtype}: return numbers")
        kinds = {name: (array.shape, array.dtype.name) for name, array in targets.items()}
        known = known or kinds
        expect(kinds == known, f"targets() returned {kinds}, but {known} before: use fixed shapes and types (pad)")
        if ends < 10:
            ends += _check_episode_end(task, segment, sequence, bootstrap)


def _without_future(segment: Segment, first: int) -> Segment:
    """A copy of `segment` with different experience from step `first` on."""
    layout, end = segment.layout, segment.agent(0).end
    copy = synthetic_segment(layout.spec, layout.extra, end, seed=1)
    kept = np.arange(max(0, end + 1 - layout.ring), first) % layout.ring
    for name, array in segment.arrays.items():
        if array.ndim > 1:
            copy.arrays[name][:, kept] = array[:, kept]
    return copy


def _check_episode_end(task: AuxiliaryTask, segment: Segment, sequence: ReplaySequence, bootstrap: Any) -> bool:
    """Checks that experience and bootstraps after a termination do not change the targets up to it.

    Returns:
      Whether the sequence has a termination.
    """
    first, length = sequence
    (terminated,) = np.nonzero(segment.agent(0).get("flags", first, length) & TERMINATED)
    if not len(terminated):
        return False
    steps = int(terminated[0]) + 1
    other = _without_future(segment, first + steps + 1)  # the next row holds the episode's last observation
    targets = task.targets(segment.agent(0), sequence, bootstrap)
    changed = task.targets(other.agent(0), sequence, None if bootstrap is None else bootstrap + 9)
    for name, array in targets.items():
        if array.shape[:1] == (task.length(other.layout.spec.t_max),):
            same = np.array_equal(array[:steps], changed[name][:steps])
            expect(same, f"target {name!r} depends on what follows an episode's termination, where the discount is 0")
    return True


def _check_agent_process(task: AuxiliaryTask, spec: Spec, bootstrap_shape: tuple[int, ...] | None) -> None:
    given = told((task, spec, bootstrap_shape))
    done = subprocess.run(python(_AGENT), input=given, capture_output=True, check=False)
    *_, error = done.stderr.decode(errors="replace").splitlines() or ["no error message"]
    fix = "; import Keras inside head, loss and bootstrap" if "halted" in error else ""
    expect(done.returncode == 0, f"sample() and targets() must work without Keras, TensorFlow and JAX: {error}{fix}")
