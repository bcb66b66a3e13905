"""The contract of auxiliary tasks as a test: `check_task(MyTask)` in a plug-in's own test suite."""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
from typing import Any

import numpy as np

from gunreal.config.schema import Config, ConfigError
from gunreal.experience.replay import RESET, TERMINATED, TRUNCATED, Replay
from gunreal.experience.segment import Segment
from gunreal.experience.spec import Spec
from gunreal.experience.synthetic import synthetic_segment
from gunreal.tasks.base import AuxiliaryTask, ReplaySequence
from gunreal.tasks.recorded import recorded_fields

IMAGES = Spec((1, 36, 36), 2, "uint8", num_actions=3, t_max=6)
_SEQUENCES = 8  # of a batch
_HIDDEN = 32  # units

# What an agent process does with a task, with the frameworks out of reach.
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
    """Holds a task against everything that `gunreal.tasks.base` asks of it, on random experience.

    It builds a small network and trains it once, under Keras's present backend (a few seconds). Of images it then does
    the same with a recurrent network, unless `task.check` refuses that.

    Args:
      task: the class, or an instance.
      spec: the environment's; small gray images unless given.
      options: of the task, where `task` is a class.

    Raises:
      AssertionError: the first rule that is broken, in one line.
      ValueError: `task.check` refuses `spec`.
    """
    if isinstance(task, type):
        task = task(**options)
    copy = pickle.loads(pickle.dumps(task))
    _expect(copy == task, "the task does not come back equal from pickling: make it a frozen dataclass of plain values")
    name = getattr(task, "name", None)
    _expect(isinstance(name, str) and name.isidentifier(), f"name is {name!r}: choose an identifier")
    seen = ("hidden", "conv", "both")
    _expect(task.features in seen, f"features is {task.features!r}: choose one of {', '.join(seen)}")
    task.check(spec)
    try:
        recorded_fields([task], spec)
    except ConfigError as error:
        raise AssertionError(str(error)) from error
    _check_sampling(task, spec)
    if "keras" not in sys.modules:
        from gunreal.learning import backend

        backend.select(os.environ.get("KERAS_BACKEND", "tensorflow"))
    _check_learning(task, spec)
    recurrent = spec._replace(state=2 * _HIDDEN)
    if spec.is_image and not spec.state and _fits(task, recurrent):
        _check_learning(task, recurrent)


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
    """Sequences lie in the ring, have a length that was announced and end where they must, however full the ring is."""
    empty = task.sample(_experience(task, spec, 0).agent(0), np.random.default_rng(0))
    _expect(empty is None, f"sample() gave {empty} of an empty ring: give None")
    limit = task.length(spec.t_max)
    _expect(isinstance(limit, int) and limit >= 1, f"length() is {limit!r}: give an int of 1 or more")
    for steps in (1, 2, spec.t_max, 3 * spec.t_max, 100 * spec.t_max):
        replay = _experience(task, spec, steps).agent(0)
        for first, length in _draw(task, replay, 100):
            where = f"sample() gave steps {first} to {first + length - 1}"
            _expect(1 <= length <= limit, f"{where}: length is {length}, length() allows 1 to {limit}")
            complete = replay.oldest <= first and first + length <= replay.end
            _expect(complete, f"{where}: the complete steps are {replay.oldest} to {replay.end - 1}")
            passed = replay.get("flags", first, length - 1) & TRUNCATED
            _expect(not passed.any(), f"{where}, past a truncated one: end it there (Replay.sequence_length)")
    _expect(_draw(task, replay, 100), f"sample() found nothing in {len(replay)} random steps")


def _check_targets(task: AuxiliaryTask, spec: Spec, bootstrap_shape: tuple[int, ...] | None) -> None:
    """Targets have one set of names, shapes and types, are finite, and end with the episode that their step is in."""
    segment = _experience(task, spec)
    bootstrap = None if bootstrap_shape is None else np.ones(bootstrap_shape, np.float32)
    known: dict[str, Any] | None = None
    ends = 0
    for sequence in _draw(task, segment.agent(0), 200):
        targets = task.targets(segment.agent(0), sequence, bootstrap)
        _expect("mask" not in targets, "targets() gives a 'mask', which is the library's: choose another name")
        for name, array in targets.items():
            _expect(isinstance(array, np.ndarray), f"target {name!r} is a {type(array).__name__}: give a NumPy array")
            finite = array.dtype.kind != "f" or np.isfinite(array).all()
            _expect(finite, f"target {name!r} of steps {sequence} is not finite")
        kinds = {name: (array.shape, array.dtype.name) for name, array in targets.items()}
        known = known or kinds
        _expect(kinds == known, f"targets() gave {kinds}, and {known} before: shapes and types must not vary (pad)")
        if ends < 10:
            ends += _check_episode_end(task, segment, sequence, bootstrap)


def _without_future(segment: Segment, first: int) -> Segment:
    """A copy of `segment` with other experience from step `first` on."""
    layout, end = segment.layout, segment.agent(0).end
    copy = synthetic_segment(layout.spec, layout.extra, end, seed=1)
    kept = np.arange(max(0, end + 1 - layout.ring), first) % layout.ring
    for name, array in segment.arrays.items():
        if array.ndim > 1:
            copy.arrays[name][:, kept] = array[:, kept]
    return copy


def _check_episode_end(task: AuxiliaryTask, segment: Segment, sequence: ReplaySequence, bootstrap: Any) -> bool:
    """What lies behind a termination, experience or bootstrap, must not change the targets of the steps up to it.

    Returns whether there was a termination to look at.
    """
    first, length = sequence
    (terminated,) = np.nonzero(segment.agent(0).get("flags", first, length) & TERMINATED)
    if not len(terminated):
        return False
    steps = int(terminated[0]) + 1
    other = _without_future(segment, first + steps + 1)  # the episode's last observation is in the row behind
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
    errors = done.stderr.decode(errors="replace")
    _expect(done.returncode == 0, f"sample() and targets() must work without Keras, TensorFlow and JAX:\n{errors}")


class _Learning:
    """A network with this task only, and batches for it in which the actor-critic learns nothing."""

    def __init__(self, task: AuxiliaryTask, spec: Spec):
        from gunreal.learning.backend import make_learner
        from gunreal.learning.network import Network

        self.task, self.spec = dataclasses.replace(task, weight=1.0), spec
        kind = "lstm" if spec.state else "small" if spec.is_image else "mlp"
        self.network = Network(spec, [self.task], kind=kind, hidden=spec.state // 2 or _HIDDEN)
        self.learner = make_learner(self.network, Config())

    def bootstrap(self, segment: Segment, steps: np.ndarray) -> np.ndarray | None:
        """What the task bootstraps from at `steps` `[n]`."""
        if self.task.bootstrap is None:
            return None
        past = segment.past(np.zeros(len(steps), np.int64), steps[:, None])
        return self.learner.predict(self.task.name, segment.agent(0).observations(steps), past)[0]

    def check(self, segment: Segment) -> None:
        """The loss is one finite number, also where nothing is to be learned from; masked rows are not in it; the torso
        learns from it."""
        batch = self._batch(segment)
        loss = self._loss(batch)
        _expect(np.shape(loss) == (), f"loss() has shape {np.shape(loss)}: give a scalar")
        _expect(np.isfinite(loss), f"loss() is {loss} on random experience")
        changed = self._loss(self._changed_where_masked(batch))
        _expect(np.isclose(loss, changed, rtol=1e-4), "loss() depends on rows whose mask is 0: use masked_mean")
        nothing = self._loss(self._masked(batch))
        _expect(np.isfinite(nothing), f"loss() is {nothing} where every mask is 0: use masked_mean")
        before = self._torso()
        metrics = self.learner.train(batch, 1e-3)
        _expect(metrics["skipped"] == 0, f"the gradient of loss() is not finite (its norm is {metrics['grad_norm']})")
        moved = not np.array_equal(before, self._torso())
        _expect(
            moved, "no gradient of loss() reaches the torso: does the loss use all of the head, and the head its input?"
        )

    def _torso(self) -> np.ndarray:
        return self.learner.get_state()[f"weights/{self.network.names[0]}"]

    def _loss(self, batch: dict[str, Any]) -> np.ndarray:
        import keras

        _, metrics = self.network.loss(batch, entropy=0.0, value_weight=0.0, log_epsilon=1e-6)
        return keras.ops.convert_to_numpy(metrics[f"loss_{self.task.name}"])

    def _batch(self, segment: Segment) -> dict[str, Any]:
        """As the trainer makes them: rows behind a sequence repeat its last step; the last agent had none to give."""
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
        """Other observations and targets where the mask is 0, taken from rows of the batch that are learned from."""
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
