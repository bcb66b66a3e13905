"""The trainers: threads that gather rollouts and sequences into batches and train on them (GUNREAL, algorithm 9)."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gunreal.acting.pool import Member, Pool
from gunreal.config.derived import rates, rollouts_per_batch
from gunreal.config.objective import load_objective
from gunreal.config.schema import Config
from gunreal.experience import queues, seeds
from gunreal.experience.replay import Past, concatenate_pasts, empty_observations
from gunreal.experience.returns import joined_advantages
from gunreal.experience.rollouts import read_rollouts
from gunreal.experience.sequences import DRAWS, LEAST_PRIORITY, Sequences, steps_and_mask
from gunreal.experience.spec import Spec
from gunreal.learning.minibatches import minibatches, without_tasks
from gunreal.learning.task import AuxiliaryTask
from gunreal.records import recordings
from gunreal.records.metrics import RunMetrics
from gunreal.records.recordings import Recording
from gunreal.tasks import calls

_GOLDEN = (5**0.5 - 1) / 2  # multiples of it are spread evenly over [0, 1), and so are those of every n-th number


class Batch(dict[str, Any]):
    """The batch of `Network.loss`, and the agents whose rollouts it contains.

    It has one part more, "acted", with the "version" of the weights that chose each action, int `[B, T]`.

    Attributes:
      updates: number of epochs in which each task takes part, by name.
    """

    def __init__(self, arrays: Mapping[str, Any], taken: Mapping[Member, np.ndarray], updates: Mapping[str, int]):
        super().__init__(arrays)
        self.updates, self._members = updates, list(taken)
        self._taken = dict(taken)

    @property
    def released(self) -> bool:
        """Whether `release` has been called."""
        return not self._taken

    def release(self) -> None:
        """Lets the agents know that their rollouts have been used. Later calls have no effect."""
        for member, agents in self._taken.items():
            np.add.at(member.segment.trained, agents, 1)
            groups = enumerate(member.groups)
            member.reply(queues.TRAINED, {i for i, g in groups if ((agents >= g.start) & (agents < g.stop)).any()})
        self._taken = {}

    def report(self, part: Mapping[str, Any], priorities: Mapping[str, np.ndarray]) -> None:
        """Writes the priorities of steps `[b, T]`, by the names of tasks, to the replays.

        The largest one of a step counts. If an agent has gone on so far that the row of a step holds another one, that
        one gets it. `part` is a minibatch of this batch.
        """
        for task, priority in priorities.items():
            cells, known = part[task]["cell"], (part[task]["mask"] > 0) & np.isfinite(priority)
            for number, member in enumerate(self._members):
                rows = member.segment.arrays[f"{task}.priority"].reshape(-1)
                mine = known & (cells // rows.size == number)
                places = cells[mine] % rows.size
                rows[places] = LEAST_PRIORITY
                np.maximum.at(rows, places, priority[mine])


class Batcher:
    """Collects references until a batch is full, then gathers their data. Only one thread works at a time."""

    def __init__(self, pool: Pool, config: Config, spec: Spec, tasks: tuple[AuxiliaryTask, ...], queue: queues.Pipe):
        self._pool, self._spec, self._tasks, self._queue = pool, spec, tasks, queue
        self._objective, self._seed = load_objective(config), config.seed
        self._recordings = {task.name: recordings.load(path, spec) for task in tasks if (path := task.source(spec))}
        self.rollouts = rollouts_per_batch(config)
        self.waiting: list[tuple[Member, int, int]] = []  # member, agent, first step
        self._lock = threading.Lock()

    def next(self, timeout: float) -> Batch | None:
        """The next batch, or None if no rollout arrives for `timeout` seconds before it is full."""
        with self._lock:
            while len(self.waiting) < self.rollouts:
                if not self.collect(timeout):
                    return None
            taken, self.waiting = self.waiting, []
            return self.gather(taken)

    def collect(self, timeout: float = 0) -> int:
        """Takes waiting rollouts from the queue, at most as many as the next batch needs. Returns their number."""
        records = self._queue.get(self.rollouts - len(self.waiting), timeout)
        self.add(records)
        return len(records)

    def add(self, records: np.ndarray) -> None:
        """Adds rollouts `[n]` to those waiting for a batch. Rollouts of removed processes are dropped."""
        # A removal in mid-loop would split a group, and later batches would not be made of whole groups. Agents may
        # then wait for ever with PPO, where few rollouts of each may wait for the trainers.
        members = {process: self._pool.get(process) for process in set(records["process"].tolist())}
        for process, agent, first in records.tolist():
            member = members[process]
            if member is not None:
                self.waiting.append((member, agent, first))

    def gather(self, taken: Sequence[tuple[Member, int, int]]) -> Batch:
        """The batch of these rollouts: member, agent and first step of each."""
        by_member: dict[Member, list[tuple[int, int]]] = defaultdict(list)
        for member, agent, first in taken:
            by_member[member].append((agent, first))
        lengths = {"base": self._spec.t_max} | {task.name: task.length(self._spec.t_max) for task in self._tasks}
        counts = {"base": 1} | {task.name: task.per_rollout for task in self._tasks}
        sizes = {name: counts[name] * length for name, length in lengths.items()}  # rows for each rollout
        ends = np.cumsum([len(taken) * size for size in sizes.values()])
        whole = empty_observations(self._spec, ends[-1])  # at once, which fragments less memory than several arrays
        rows = dict(zip(lengths, np.split(whole, ends[:-1]), strict=True))
        parts: list[dict[str, dict[str, Any]]] = []
        start, agents_of = 0, {}
        for member, references in by_member.items():
            agents, firsts = np.array(references).T
            agents_of[member] = agents
            stop = start + len(agents)
            outs = {name: array[start * sizes[name] : stop * sizes[name]] for name, array in rows.items()}
            parts.append(self._gather_member(member, agents, firsts, outs))
            for name in self._spec.priorities:
                parts[-1][name]["cell"] += (len(parts) - 1) * member.segment.arrays[f"{name}.priority"].size
            start = stop
        batch: dict[str, Any] = {
            name: {key: _joined([part[name][key] for part in parts]) for key in arrays}
            for name, arrays in parts[0].items()
        }
        batch["base"] = self._objective.prepared(batch["base"])
        for name, array in rows.items():
            batch[name]["observations"] = array.reshape(-1, lengths[name], *array.shape[1:])
        return Batch(batch, agents_of, {task.name: task.updates for task in self._tasks})

    def _gather_member(
        self, member: Member, agents: np.ndarray, firsts: np.ndarray, outs: Mapping[str, np.ndarray]
    ) -> dict[str, dict[str, Any]]:
        """One member's share of a batch. The observations are written to `outs`."""
        segment, spec = member.segment, self._spec
        steps = firsts[:, None] + np.arange(spec.t_max + 1)
        read, joined = segment.read(agents), functools.partial(joined_advantages, agents, firsts)
        after = {name: read(name, steps[:, -1:])[:, 0] for name in ("value", *spec.bonuses)}
        rollouts = read_rollouts(spec, read, steps[:, :-1], after, joined)
        base = self._objective.part(rollouts) | _past(segment.past(agents, steps[:, :-1]))
        part = {"base": base, "acted": {"version": read("version", steps[:, :-1])}}
        segment.gather(np.repeat(agents, spec.t_max), steps[:, :-1].ravel(), outs["base"])
        slots = firsts // spec.t_max % segment.layout.slots

        def flat(name: str) -> np.ndarray:  # of a mailbox with several sequences of each agent
            found = segment.arrays[name][agents, slots]
            return found.reshape(-1, *found.shape[2:])

        for task in self._tasks:
            out = outs[task.name]
            if recording := self._recordings.get(task.name):
                agent = member.process * segment.layout.agents + int(agents[0])
                rng = np.random.default_rng([self._seed, agent, int(firsts[0]), seeds.RECORDINGS])
                part[task.name], past = _recorded(task, recording, spec, len(agents) * task.per_rollout, rng, out)
                part[task.name] |= _past(past)
                continue
            owners, (first, length) = np.repeat(agents, task.per_rollout), flat(f"{task.name}.sequence").T
            empty = np.repeat(firsts, task.per_rollout)  # without a sequence, the rollout is used with mask 0
            sequences = Sequences(np.where(length > 0, first, empty), length)
            steps, mask = steps_and_mask(segment.read(owners), sequences, task.length(spec.t_max))
            segment.gather(np.repeat(owners, steps.shape[1]), steps.ravel(), out)
            prefix = f"{task.name}:"
            found = {name.removeprefix(prefix): flat(name) for name in segment.arrays if name.startswith(prefix)}
            if "weight" in found:
                found["weight"] *= length > 0  # a mailbox may hold that of an earlier rollout
            if task.prioritized:
                ring = segment.layout.ring
                found["cell"] = owners[:, None] * ring + steps % ring
            part[task.name] = found | {"mask": mask, **_past(segment.past(owners, steps))}
        return part


def _past(past: Past | None) -> dict[str, Any]:
    return {} if past is None else {"past": past}


def _joined(arrays: list[Any]) -> Any:
    return concatenate_pasts(arrays) if isinstance(arrays[0], Past) else np.concatenate(arrays)


def _recorded(
    task: AuxiliaryTask, recording: Recording, spec: Spec, count: int, rng: np.random.Generator, out: np.ndarray
) -> tuple[dict[str, np.ndarray], Past | None]:
    """A part of a batch with `count` sequences of a recording. Their observations are written to `out`."""
    replay, read = recording.replay(count), recording.read(count)
    sequences = calls.sample(task, replay, rng.random((count, DRAWS), np.float32))
    steps, mask = steps_and_mask(read, sequences, task.length(spec.t_max))
    out[...] = recording.observations(steps)
    return calls.targets(task, replay, sequences, None) | {"mask": mask}, recording.past(steps)


def updates(batch: Batch, config: Config, version: int) -> Iterator[dict[str, Any]]:
    """Iterates over the batches of the updates that one training batch is used for: itself, or minibatches.

    Their order is drawn from the version of the weights.
    """
    uses = load_objective(config).uses()
    if uses.is_once:
        if takes_part(version, config.task_share):
            yield batch
        else:
            yield without_tasks(batch)
        return
    rng = np.random.default_rng([config.seed, version, 0, seeds.MINIBATCHES])
    first = version // uses.epochs  # number of updates so far that were in a first epoch
    with_tasks = [takes_part(first + place, config.task_share) for place in range(uses.minibatches)]
    yield from minibatches(batch, uses.epochs, uses.minibatches, rng, with_tasks, batch.updates)


def phase_updates(kept: Sequence[Mapping[str, Any]], config: Config, version: int) -> Iterator[dict[str, Any]]:
    """Iterates over the batches of the updates of `Objective.phase`: the `kept` ones, in minibatches."""
    objective = load_objective(config)
    rng, parts = np.random.default_rng([config.seed, version, 1, seeds.MINIBATCHES]), objective.uses().minibatches
    for _ in range(objective.phase().epochs):
        for place in rng.permutation(len(kept)):
            yield from minibatches(kept[place], 1, parts, rng, [False] * parts, {})


def takes_part(update: int, share: float) -> bool:
    """Whether the tasks take part in this update on new rollouts, counted from 0.

    They do in an even `share` of all updates, and of every second or third one. Several trainers may begin batches with
    the same count, and then ask about some of the numbers only.
    """
    return update * _GOLDEN % 1 < share


class Updates(Protocol):
    """What a trainer needs of a learner. On a node of a cluster, others apply its gradients."""

    @property
    def version(self) -> int:
        """Number of updates applied."""

    def train(self, batch: Mapping[str, Any], learning_rate: float, entropy: float, progress: float) -> dict[str, Any]:
        """Does one update, see `Learner.train`."""

    def ready(self) -> None:
        """Waits until `version` and the weights are those after the last update."""

    def recall(self, batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The present outputs for a batch, see `Learner.recall`."""

    def warm_up(self, batch: Mapping[str, Any]) -> None:
        """Compiles an update, see `Learner.warm_up`."""

    def hold(self) -> None:
        """Lets predictions use the present weights until the next call, see `Learner.hold`."""


class Trainer:
    """Trains on batches and reports each update.

    Args:
      at_once: maximum number of gradients computed at the same time. Each needs about 100 MB with three tasks.
      hurried: returns whether to leave the rest of a batch unused, because the run should end soon.
    """

    def __init__(
        self,
        learner: Updates,
        config: Config,
        metrics: RunMetrics,
        at_once: int = 1,
        hurried: Callable[[], bool] = lambda: False,
    ):
        self._learner, self._config, self._metrics = learner, config, metrics
        self._hurried = hurried
        self._turns = threading.BoundedSemaphore(at_once)
        objective = load_objective(config)
        self._uses, self._phase = objective.uses(), objective.phase()
        # In a serial run, nothing acts during updates.
        self._holds = not (self._uses.is_once or config.runner == "serial")
        self._kept: list[dict[str, Any]] = []  # batches since the last phase

    def warm_up(self, batch: Batch) -> None:
        """Compiles what `work` does with a batch of this size. Nothing is learned from it."""
        compiled = set()
        for share in (1.0, 0.0) if self._config.task_share < 1 else (1.0,):  # some updates leave out the tasks
            for part in updates(batch, dataclasses.replace(self._config, task_share=share), 0):
                shapes = frozenset(part), len(part["base"]["mask"])  # minibatches may have two sizes
                if shapes not in compiled:
                    compiled.add(shapes)
                    self._learner.warm_up(learned(part))
        if self._phase:
            kept = [self._recalled(learned(without_tasks(batch)))]
            self._learner.warm_up(next(phase_updates(kept, self._config, 0)))

    def work(self, batch: Batch) -> None:
        """Does all updates of a batch.

        The agents of the batch go on during the last `Uses.overlap` epochs. They act with the weights from before these
        epochs until their next rollouts are full. So which weights chose an action depends on the number of updates,
        and not on the speed of the machine (Huang et al. 2024, Cleanba).
        """
        config, uses, (rollouts, length) = self._config, self._uses, batch["base"]["mask"].shape
        unused = rollouts * length
        alone = min(uses.minibatches, rollouts) * max(0, uses.epochs - uses.overlap)
        self._learner.ready()
        for number, part in enumerate(updates(batch, config, self._learner.version)):
            if self._hurried():
                break
            if number == alone:
                self._release(batch)
            new = min(unused, part["base"]["mask"].size)  # the first epoch comes first
            unused -= new
            batch.report(part, self._update(part, new))
        self._release(batch)
        if self._phase:
            self._kept.append(learned(without_tasks(batch)))
            if len(self._kept) == self._phase.batches:
                self._do_phase()

    def _recalled(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        return {**batch, "old": self._learner.recall(batch)}

    def _do_phase(self) -> None:
        """Does the updates of `Objective.phase`."""
        kept, self._kept = [self._recalled(batch) for batch in self._kept], []
        for part in phase_updates(kept, self._config, self._learner.version):
            if self._hurried():
                break
            self._update(part, 0, "phase_")

    def _release(self, batch: Batch) -> None:
        if self._holds and not batch.released:
            self._learner.hold()
        batch.release()

    def _update(self, batch: dict[str, Any], new: int, prefix: str = "") -> dict[str, np.ndarray]:
        """Does one update, with `new` agent steps that were not used before. Returns the priorities that it found."""
        config = self._config
        acted = batch["acted"]["version"] if "acted" in batch else np.zeros(0, np.int64)  # a phase has no policy lag
        now = rates(config, self._metrics.step)
        with self._turns:
            scalars = self._learner.train(learned(batch), *now)
        skipped, priorities = scalars.pop("skipped") > 0, scalars.pop("priorities", {})
        lags = int(scalars.pop("version")) - acted
        scalars = {f"{prefix}{name}": value for name, value in scalars.items()} | {"learning_rate": now.learning_rate}
        self._metrics.trained(new, lags.ravel(), scalars, skipped, batch["base"]["mask"].size)
        return priorities


def learned(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a training batch from which the network learns, as `Network.loss` takes them."""
    return {name: part for name, part in batch.items() if name != "acted"}
