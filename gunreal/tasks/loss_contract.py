"""The part of the contract of auxiliary tasks that needs a network: the head, the bootstrap and the loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.config.plugins import calling, expect
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config
from gunreal.experience.replay import Past, Replay
from gunreal.experience.segment import Segment
from gunreal.experience.sequences import DRAWS, Drawn, steps_and_mask
from gunreal.experience.spec import Spec
from gunreal.learning import registry
from gunreal.learning.architecture import Architecture
from gunreal.learning.mlp import Perceptron
from gunreal.learning.task import AuxiliaryTask
from gunreal.tasks import calls

_SEQUENCES = 8  # per batch
_HIDDEN = 32  # units


def drawn(task: AuxiliaryTask, segment: Segment, count: int, seed: int = 1) -> tuple[Replay, Drawn]:
    """`count` draws from the ring of one agent without those that found nothing, and as many copies of its replay."""
    copies = np.zeros(count, np.int64)
    draws = np.random.default_rng(seed).random((count, DRAWS), np.float32)
    sequences = calls.sample(task, segment.replay(copies), draws)
    found = sequences.length > 0
    return segment.replay(copies[found], int(segment.end[0])), _taken(sequences, found)


def _taken(sequences: Drawn, places: Any) -> Drawn:
    return type(sequences)(*(part[places] for part in sequences))


@dataclasses.dataclass(frozen=True)
class _RecurrentPerceptron(Perceptron):
    """A recurrent network for vectors."""

    def state(self) -> int:
        return self.hidden

    def cell(self, seed: int) -> Any:
        from keras import layers

        return layers.GRUCell(self.hidden)


class Learning:
    """A network with this task only, trained on batches in which the actor-critic learns nothing."""

    def __init__(self, task: AuxiliaryTask, spec: Spec, architecture: Architecture | None = None):
        from gunreal.learning.backend import make_learner
        from gunreal.learning.network import Network

        self.task, self.spec = dataclasses.replace(task, weight=1.0), spec
        if architecture is None and spec.state and not spec.is_image:
            architecture = _RecurrentPerceptron(hidden=spec.state)
        elif architecture is None:
            name = "lstm" if spec.state else "small" if spec.is_image else "mlp"
            architecture = registry.named(name, hidden=spec.state // 2 or _HIDDEN)
        architecture.check(spec)
        self.network = Network(spec, [self.task], architecture)
        config = Config(objective="a3c", objective_args={"correction": "epsilon"})
        self.learner = make_learner(self.network, resolved(config))

    def bootstrap(self, segment: Segment, steps: np.ndarray) -> np.ndarray | None:
        """What the task bootstraps from at `steps` `[n]`."""
        if self.task.bootstrap is None:
            return None
        past = segment.past(np.zeros(len(steps), np.int64), steps[:, None])
        observations = segment.replay(np.zeros(len(steps), int)).observations(steps[:, None])[:, 0]
        return self.learner.predict(self.task.name, observations, past)[0]

    def check(self, segment: Segment) -> None:
        """Checks the loss.

        It is a finite scalar, even if every row is masked. It ignores masked rows. Its gradient reaches the torso.
        """
        batch = self._batch(segment)
        if self.task.bonus is not None:
            self._check_bonus(segment)
        loss, state = self._loss(batch)
        expect(np.isfinite(loss), f"loss() is {loss} on random experience")
        again, _ = self._loss(batch)
        both = f"{loss} and then {again}"
        expect(loss == again, f"loss() is {both} for the same batch: use no random numbers but net.draws")
        changed, other = self._loss(self._changed_where_masked(batch))
        expect(np.isclose(loss, changed, rtol=1e-4), "loss() depends on rows whose mask is 0: use masked_mean")
        for name, array in state.items():
            same = np.allclose(array, other[name], rtol=1e-4, atol=1e-6)
            expect(same, f"the new {name} depends on rows whose mask is 0: leave them out")
        nothing, state = self._loss(self._masked(batch))
        expect(np.isfinite(nothing), f"loss() is {nothing} when every mask is 0: use masked_mean")
        for name, array in state.items():
            expect(np.isfinite(array).all(), f"the new {name} is not finite when every mask is 0: leave it as it is")
        gradient = self.learner.gradient(batch)
        metrics = gradient.metrics
        expect(not metrics["skipped"], f"the gradient of loss() is not finite (its norm is {metrics['grad_norm']})")
        first = np.asarray(gradient.values[0])  # of the torso
        if self.task.trains_torso:
            reached = metrics[f"{self.task.name}_norm"] > 0 if self.task.gate else np.any(first)  # before the gate
            expect(reached, "no gradient of loss() reaches the torso: use all of the head in the loss")
        else:
            found = any(np.any(np.asarray(x)) for x in gradient.values)
            expect(found, "loss() has no gradient: use all of the head in the loss")
        self._check_shown(batch)

    def _check_shown(self, batch: dict[str, Any]) -> None:
        """What the task shows is numbers and arrays of them."""
        from keras import ops, tree

        found = tree.map_structure(ops.convert_to_numpy, self.network.look(batch)[self.task.name]["outputs"])
        with calling("show()"):
            for value in self.task.show(found, self.task.length(self.spec.t_max)).values():
                np.asarray(list(value.values()) if isinstance(value, Mapping) else value, np.float32)

    def _check_bonus(self, segment: Segment) -> None:
        """Bonuses are finite, and each depends on its own observation."""
        steps, agents, spec = np.arange(1, 5), np.zeros(4, np.int64), self.spec.acting
        observations = np.empty((4, *spec.observation), spec.dtype)
        segment.gather(agents, steps, observations, spec)
        past = segment.past(agents, steps[:, None], spec)
        bonus = self.learner.predict("bonus", observations, past)[2]
        expect(np.isfinite(bonus).all(), f"bonus() is {bonus} on random experience")
        first = past and Past(*(array[:1] for array in past))
        (alone,) = self.learner.predict("bonus", observations[:1], first)[2]
        expect(np.isclose(alone, bonus[0], rtol=1e-4), "bonus() of an observation depends on the others in the batch")

    def _loss(self, batch: dict[str, Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The loss, and the new state of the task with its priorities of steps that count, as "<task>.priority"."""
        from keras import ops

        _, metrics, state, _ = self.network.loss(batch, self.learner.objective, entropy=0.0, value_weight=0.0)
        new = {name: ops.convert_to_numpy(array) for name, array in state.items()}
        if self.task.prioritized:
            name = self.task.name
            found, mask = ops.convert_to_numpy(metrics[f"priority/{name}"]), batch[name]["mask"]
            expect((found[mask > 0] >= 0).all(), "loss() returns priorities below 0 or that are no numbers")
            new[f"{name}.priority"] = np.where(mask > 0, found, 0)
        return ops.convert_to_numpy(metrics[f"loss_{self.task.name}"]), new

    def _batch(self, segment: Segment) -> dict[str, Any]:
        """A batch as the trainer makes it. Padding repeats a sequence's last step; the last agent has no sequence."""
        limit, t_max = self.task.length(self.spec.t_max), self.spec.t_max
        sequences = _taken(drawn(self.task, segment, 20 * _SEQUENCES)[1], slice(_SEQUENCES))
        count = len(sequences.first)
        replay = segment.replay(np.zeros(count, np.int64))
        steps, mask = steps_and_mask(segment.read(np.zeros(count, np.int64)), sequences, limit)
        mask[-1] = 0
        bootstraps = self.bootstrap(segment, sequences.first + sequences.length)
        targets = calls.targets(self.task, replay, sequences, bootstraps)
        rollout = np.zeros((count, t_max), np.float32)
        base: dict[str, Any] = {"action": rollout.astype(np.int32), "returns": rollout, "mask": rollout}
        base["observations"] = np.zeros((count, t_max, *self.spec.observation), self.spec.dtype)
        if "weight" in targets:
            targets["weight"][-1] = 0
        own = targets | {"mask": mask, "observations": replay.observations(steps)}
        agents = np.zeros(count, np.int64)
        if past := segment.past(agents, steps):
            own["past"], base["past"] = past, segment.past(agents, np.arange(t_max) + agents[:, None])
        return {"base": base, self.task.name: own}

    def _masked(self, batch: dict[str, Any]) -> dict[str, Any]:
        name = self.task.name
        return {**batch, name: {**batch[name], "mask": np.zeros_like(batch[name]["mask"])}}

    def _changed_where_masked(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch with other observations and targets where the mask is 0, copied from rows whose mask is 1."""
        name = self.task.name
        mask, part = batch[name]["mask"], dict(batch[name])
        for key in part.keys() - {"mask", "past", "weight"}:
            array = part[key] = part[key].copy()
            if array.shape[1:2] == mask.shape[1:]:
                array[mask == 0] = array[np.unravel_index(mask.argmax(), mask.shape)]
            else:
                array[-1] = array[0]
        return {**batch, name: part}
