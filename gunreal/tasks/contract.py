"""The contract of auxiliary tasks as a test: `gunreal.testing.check_task`."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.config.plugins import calling, lost_option
from gunreal.config.schema import Config, ConfigError
from gunreal.experience.replay import RESET, TERMINATED, TRUNCATED, Replay
from gunreal.experience.segment import Segment
from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import synthetic_segment
from gunreal.learning import devices, registry
from gunreal.tasks.base import AuxiliaryTask, ReplaySequence
from gunreal.tasks.batch_contract import broken_rule, has_batch_form
from gunreal.tasks.recorded import recorded_fields
from gunreal.tasks.registry import TASK

IMAGES = Spec((1, 36, 36), 2, "uint8", num_actions=3, t_max=6)
_SEQUENCES = 8  # per batch
_HIDDEN = 32  # units
_SEEN = ("hidden", "conv", "both")

# Does what an agent process does with a task, with all frameworks blocked.
_AGENT = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
sys.modules.update(dict.fromkeys(("keras", "tensorflow", "jax", "torch")))
task, spec, bootstrap = pickle.load(sys.stdin.buffer)
import numpy as np
from gunreal.tasks.dry_run import target_arrays
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
    _expect(issubclass(cls, AuxiliaryTask), "the class does not inherit from gunreal.AuxiliaryTask")
    _expect(not (lost := lost_option(cls, AuxiliaryTask)), lost)
    _expect(cls.__module__ != "__main__", "other processes cannot import the class: define it in a module of its own")
    if isinstance(task, type):
        task = task(**options)
    copy = pickle.loads(pickle.dumps(task))
    _expect(copy == task, "the task is not equal to its pickled copy: make it a frozen dataclass of plain values")
    name = getattr(task, "name", None)
    usable = isinstance(name, str) and name.isidentifier() and name not in TASK.reserved
    _expect(usable, f"name is {name!r}: choose an identifier other than {', '.join(TASK.reserved)}")
    _expect(task.features in _SEEN, f"features is {task.features!r}: choose one of {', '.join(_SEEN)}")
    task.check(spec)
    devices.select_any()
    try:
        recorded_fields([task], spec)
        _check_sampling(task, spec)
        _check_learning(task, spec)
        recurrent = spec._replace(state=2 * _HIDDEN)
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
    learning = _Learning(task, spec)
    segment = _experience(task, spec, spec.t_max)
    bootstrap = learning.bootstrap(segment, np.zeros(1, np.int64))
    bootstrap_shape = None if bootstrap is None else bootstrap.shape[1:]
    _check_targets(task, spec, bootstrap_shape)
    if has_batch_form(task):
        for steps in (spec.t_max - 1, 2 * spec.t_max, 100 * spec.t_max):
            problem = broken_rule(task, _experience(task, spec, steps), bootstrap_shape)
            _expect(problem is None, problem or "")
    _check_agent_process(task, spec, bootstrap_shape)
    learning.check(_experience(task, spec))


def _expect(condition: Any, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _experience(task: AuxiliaryTask, spec: Spec, steps: int | None = None, seed: int = 0) -> Segment:
    return synthetic_segment(spec, task.record(spec), 100 * spec.t_max if steps is None else steps, seed)


def _draw(task: AuxiliaryTask, replay: Replay, count: int) -> list[ReplaySequence]:
    rng = np.random.default_rng(1)
    draws = (task.sample(replay, rng) for _ in range(count))
    return [draw for draw in draws if draw is not None]


def _check_sampling(task: AuxiliaryTask, spec: Spec) -> None:
    """Sequences lie in the ring, have an allowed length and end with a truncated step, however full the ring is."""
    empty = task.sample(_experience(task, spec, 0).agent(0), np.random.default_rng(0))
    _expect(empty is None, f"sample() returned {empty} for an empty ring: return None")
    limit = task.length(spec.t_max)
    _expect(isinstance(limit, int) and limit >= 1, f"length() is {limit!r}: return an int of 1 or more")
    for steps in (1, 2, spec.t_max, 3 * spec.t_max, 100 * spec.t_max):
        replay = _experience(task, spec, steps).agent(0)
        for first, length in _draw(task, replay, 100):
            where = f"sample() returned steps {first} to {first + length - 1}"
            _expect(1 <= length <= limit, f"{where}: the length is {length}, but length() allows 1 to {limit}")
            complete = replay.oldest <= first and first + length <= replay.end
            _expect(complete, f"{where}: only steps {replay.oldest} to {replay.end - 1} are complete")
            passed = replay.get("flags", first, length - 1) & TRUNCATED
            _expect(not passed.any(), f"{where}, past a truncated step: end it there (Replay.sequence_length)")
    _expect(_draw(task, replay, 100), f"sample() found nothing in {len(replay)} random steps")


def _check_targets(task: AuxiliaryTask, spec: Spec, bootstrap_shape: tuple[int, ...] | None) -> None:
    """Targets have fixed names, shapes and types, are finite, and do not depend on what follows a termination."""
    segment = _experience(task, spec)
    bootstrap = None if bootstrap_shape is None else np.ones(bootstrap_shape, np.float32)
    known: dict[str, Any] | None = None
    ends = 0
    for sequence in _draw(task, segment.agent(0), 200):
        with calling("targets()"):
            targets = task.targets(segment.agent(0), sequence, bootstrap)
        kind = type(targets).__name__
        _expect(isinstance(targets, Mapping), f"targets() returned a {kind}: return a dict of NumPy arrays")
        _expect("mask" not in targets, "targets() returned 'mask', a name that is reserved: choose another name")
        for name, array in targets.items():
            _expect(isinstance(array, np.ndarray), f"target {name!r} is a {type(array).__name__}: return a NumPy array")
            finite = array.dtype.kind != "f" or np.isfinite(array).all()
            _expect(finite, f"target {name!r} of steps {sequence} is not finite")
            _expect(array.dtype != np.float64, f"target {name!r} is float64: return float32")
            _expect(array.dtype.kind in "biuf", f"target {name!r} is {array.dtype}: return numbers")
        kinds = {name: (array.shape, array.dtype.name) for name, array in targets.items()}
        known = known or kinds
        _expect(kinds == known, f"targets() returned {kinds}, but {known} before: use fixed shapes and types (pad)")
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
            _expect(same, f"target {name!r} depends on what follows an episode's termination, where the discount is 0")
    return True


def _check_agent_process(task: AuxiliaryTask, spec: Spec, bootstrap_shape: tuple[int, ...] | None) -> None:
    given = pickle.dumps(sys.path) + pickle.dumps((task, spec, bootstrap_shape))
    done = subprocess.run([sys.executable, "-c", _AGENT], input=given, capture_output=True, check=False)
    *_, error = done.stderr.decode(errors="replace").splitlines() or ["no error message"]
    fix = "; import Keras inside head, loss and bootstrap" if "halted" in error else ""
    _expect(done.returncode == 0, f"sample() and targets() must work without Keras, TensorFlow and JAX: {error}{fix}")


class _Learning:
    """A network with this task only, trained on batches in which the actor-critic learns nothing."""

    def __init__(self, task: AuxiliaryTask, spec: Spec):
        from gunreal.learning.backend import make_learner
        from gunreal.learning.network import Network

        self.task, self.spec = dataclasses.replace(task, weight=1.0), spec
        name = "lstm" if spec.state else "small" if spec.is_image else "mlp"
        architecture = registry.named(name, hidden=spec.state // 2 or _HIDDEN)
        architecture.check(spec)
        self.network = Network(spec, [self.task], architecture)
        self.learner = make_learner(self.network, Config())

    def bootstrap(self, segment: Segment, steps: np.ndarray) -> np.ndarray | None:
        """What the task bootstraps from at `steps` `[n]`."""
        if self.task.bootstrap is None:
            return None
        past = segment.past(np.zeros(len(steps), np.int64), steps[:, None])
        return self.learner.predict(self.task.name, segment.agent(0).observations(steps), past)[0]

    def check(self, segment: Segment) -> None:
        """Checks the loss.

        It is a finite scalar, even if every row is masked. It ignores masked rows. Its gradient reaches the torso.
        """
        batch = self._batch(segment)
        try:
            loss = self._loss(batch)
        except ConfigError as error:
            raise AssertionError(str(error)) from error
        _expect(np.isfinite(loss), f"loss() is {loss} on random experience")
        changed = self._loss(self._changed_where_masked(batch))
        _expect(np.isclose(loss, changed, rtol=1e-4), "loss() depends on rows whose mask is 0: use masked_mean")
        nothing = self._loss(self._masked(batch))
        _expect(np.isfinite(nothing), f"loss() is {nothing} when every mask is 0: use masked_mean")
        gradient = self.learner.gradient(batch)
        metrics = gradient.metrics
        _expect(not metrics["skipped"], f"the gradient of loss() is not finite (its norm is {metrics['grad_norm']})")
        reached = np.any(np.asarray(gradient.values[0]))  # the torso's first variable
        _expect(reached, "no gradient of loss() reaches the torso: use all of the head in the loss")

    def _loss(self, batch: dict[str, Any]) -> np.ndarray:
        import keras

        _, metrics = self.network.loss(batch, entropy=0.0, value_weight=0.0, log_epsilon=1e-6)
        return keras.ops.convert_to_numpy(metrics[f"loss_{self.task.name}"])

    def _batch(self, segment: Segment) -> dict[str, Any]:
        """A batch as the trainer makes it. Padding repeats a sequence's last step; the last agent has no sequence."""
        replay = segment.agent(0)
        limit, t_max = self.task.length(self.spec.t_max), self.spec.t_max
        sequences = _draw(self.task, replay, 20 * _SEQUENCES)[:_SEQUENCES]
        starts = np.array([s.first for s in sequences])[:, None]
        lengths = np.array([s.length for s in sequences])[:, None]
        steps = starts + np.minimum(np.arange(limit), lengths - 1)
        flags = np.array([replay.get("flags", int(first), limit) for first in starts[:, 0]])
        mask = ((np.arange(limit) < lengths) & (flags & RESET == 0)).astype(np.float32)
        mask[-1] = 0
        bootstraps = self.bootstrap(segment, np.array([s.first + s.length for s in sequences]))
        targets = [
            self.task.targets(replay, s, None if bootstraps is None else bootstraps[i]) for i, s in enumerate(sequences)
        ]
        count = len(sequences)
        rollout = np.zeros((count, t_max), np.float32)
        base = np.zeros((count * t_max, *self.spec.observation), self.spec.dtype)
        past = {"base": segment.past(np.zeros(count, np.int64), np.arange(t_max) + np.zeros((count, 1), np.int64))}
        if self.task.features != "conv":
            past[self.task.name] = segment.past(np.zeros(count, np.int64), steps)
        return ({"past": past} if self.spec.state else {}) | {
            "observations": np.concatenate([base, replay.observations(steps.ravel())]),
            "base": {"action": rollout.astype(np.int32), "returns": rollout, "mask": rollout},
            self.task.name: {name: np.stack([t[name] for t in targets]) for name in targets[0]} | {"mask": mask},
        }

    def _masked(self, batch: dict[str, Any]) -> dict[str, Any]:
        name = self.task.name
        return {**batch, name: {**batch[name], "mask": np.zeros_like(batch[name]["mask"])}}

    def _changed_where_masked(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch with other observations and targets where the mask is 0, copied from rows whose mask is 1."""
        name = self.task.name
        mask = batch[name]["mask"]
        observations = batch["observations"].copy()
        rows = observations[-mask.size :]
        rows[mask.ravel() == 0] = rows[int(mask.argmax())]
        targets = {key: array.copy() for key, array in batch[name].items()}
        for array in targets.values():
            if array is targets["mask"]:
                continue
            if array.shape[1:2] == mask.shape[1:]:
                array[mask == 0] = array[np.unravel_index(mask.argmax(), mask.shape)]
            else:
                array[-1] = array[0]
        return {**batch, "observations": observations, name: targets}
