"""The agents: environments that step in groups. One group steps while the other waits for its predictions.

An agent process runs a `Worker`. The worker writes experience to its replay rings, requests actions and bootstraps from
the prediction queues, and passes references to finished rollouts to the trainers. It never loads TensorFlow, JAX or
Keras.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from gunreal.config.schema import Config
from gunreal.envs.make import make, restore
from gunreal.envs.step import Step
from gunreal.experience import queues
from gunreal.experience.replay import FIRST, RESET, TERMINATED, TRUNCATED, Replay
from gunreal.experience.segment import Layout, Segment
from gunreal.experience.sequences import DRAWS, Drawn, Sequences, WeightedSequences
from gunreal.learning.task import BASE, AuxiliaryTask, prediction_heads
from gunreal.tasks.calls import sample, write_targets


class Outbox(NamedTuple):
    """The ends of the pipes that an agent process writes to. `requests` has one for each prediction queue."""

    requests: tuple[int, ...]
    rollouts: int
    episodes: int


def group_slices(agents: int) -> list[slice]:
    """The agents of each group: two halves, or a single group of one agent."""
    half = agents - agents // 2
    return [slice(0, half), slice(half, agents)] if agents > 1 else [slice(0, 1)]


class Group:
    """Agents that step together. `end` is the same in all of their rings.

    Attributes:
      agents: indices of the agents in the segment.
      first: step at which the current rollout started.
      answered: whether the base queue has answered for row `end`, which has not been stepped yet.
      awaited: prediction queues that have not yet answered for the last finished rollout.
      sequences: sequences sampled for the last finished rollout, by task name.
      closed: number of full rollouts.
    """

    def __init__(self, agents: slice):
        self.agents = agents
        self.first = 0
        self.answered = False
        self.awaited: set[int] = set()
        self.sequences: dict[str, Drawn] = {}
        self.closed = 0

    def get_state(self) -> dict[str, Any]:
        """The state except `agents`, as plain values."""
        sequences = {task: tuple(drawn) for task, drawn in self.sequences.items()}
        return {name: getattr(self, name) for name in ("first", "answered", "awaited", "closed")} | {
            "sequences": sequences
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a state returned by `get_state`."""
        for name in ("first", "answered", "awaited", "closed"):
            setattr(self, name, state[name])
        for task, drawn in state["sequences"].items():
            self.sequences[task] = Sequences(*drawn) if len(drawn) == 2 else WeightedSequences(*drawn)


class Worker:
    """Steps the environments of one segment. Its owner passes it the replies from its wake pipe."""

    def __init__(
        self,
        config: Config,
        layout: Layout,
        tasks: tuple[AuxiliaryTask, ...],
        process: int,
        segment: Segment,
        outbox: Outbox,
    ):
        self.config, self.layout, self.tasks, self.process = config, layout, tasks, process
        self.segment, self.outbox = segment, outbox
        self.heads = prediction_heads(tasks)
        self.groups = [Group(agents) for agents in group_slices(layout.agents)]
        self.rngs = [self._rng(i, 0) for i in range(layout.agents)]
        self.episode = np.zeros(layout.agents, np.int64)  # number of each agent's current episode
        self.score = np.zeros(layout.agents, np.float64)
        self.actions: list[list[int]] = [[] for _ in range(layout.agents)]  # of the current episodes, for exact resume
        arrays = segment.arrays
        self.targets = {  # the arrays of each task's targets, by name
            task.name: {key.partition(":")[2]: arrays[key] for key in arrays if key.startswith(f"{task.name}:")}
            for task in tasks
        }
        keys = [field.key for field in layout.extra.values()]
        self.envs = [make(config, g.agents.stop - g.agents.start, keys) for g in self.groups]

    def _rng(self, agent: int, stream: int) -> np.random.Generator:
        agent_id = self.process * self.layout.agents + agent
        return np.random.default_rng([self.config.seed, agent_id, stream])

    def _episode_seed(self, agent: int) -> int:
        return int(self._rng(agent, 1 + int(self.episode[agent])).integers(2**31))

    def start(self) -> None:
        """Resets every environment and requests the first actions."""
        for index, group in enumerate(self.groups):
            count = group.agents.stop - group.agents.start
            self.segment.arrays["flags"][group.agents, 0] = RESET  # as if a row -1 had asked for a reset
            self._step(index, np.zeros(count, np.int32), np.ones(count, bool), 0)

    def handle(self, replies: np.ndarray) -> None:
        """Handles replies `[n]`: steps groups and publishes rollouts."""
        for queue, index in replies.tolist():
            if queue == BASE:
                self.groups[index].answered = True
                self.segment.waits.end(index)
            elif queue != queues.TRAINED:
                self._bootstrapped(index, queue)
        for index, group in enumerate(self.groups):
            if not group.answered:
                continue
            if self._may_close(group):
                self._close_rollout(index)
            if self._may_step(group):
                group.answered = False
                end = self._end(group)
                row = end % self.layout.ring
                reset = self.segment.arrays["flags"][group.agents, row] & RESET != 0
                self._step(index, self.segment.arrays["action"][group.agents, row], reset, end + 1)

    def _end(self, group: Group) -> int:
        """`Replay.end` of a group's agents."""
        return int(self.segment.end[group.agents.start])

    def _has_room(self, group: Group) -> bool:
        """Whether another rollout of a group may wait for the trainers."""
        return bool(group.closed - self.segment.trained[group.agents].min() < self.segment.allowance)

    def _may_close(self, group: Group) -> bool:
        """Whether a group's rollout is full, and the mailboxes are not in use by earlier ones."""
        full = self._end(group) - group.first == self.layout.spec.t_max
        return full and not group.awaited and self._has_room(group)

    def _may_step(self, group: Group) -> bool:
        """Whether a group may step.

        A group may run only a few steps ahead while too many of its rollouts wait for the trainers. This back-pressure
        bounds the training queue and the policy lag.
        """
        ahead = self._end(group) - group.first
        return ahead < self.layout.spec.t_max and (ahead < self.config.run_ahead or self._has_room(group))

    def _step(self, index: int, actions: np.ndarray, reset: np.ndarray, row: int) -> None:
        """Completes step `row - 1`, writes the observation of step `row` and requests its action.

        The request of one group is sent before the next group steps, so that it is answered in the meantime.
        """
        group = self.groups[index]
        seeds = np.zeros(len(actions), np.int64)
        for i in np.nonzero(reset)[0].tolist():
            agent = group.agents.start + i
            self.episode[agent] += 1
            seeds[i] = self._episode_seed(agent)
            self.actions[agent].clear()
        if self.config.runner == "serial":
            for i in np.nonzero(~reset)[0].tolist():
                self.actions[group.agents.start + i].append(int(actions[i]))
        self.segment.busy_since[index] = time.monotonic()
        step = self.envs[index].step(actions, reset, seeds)
        self.segment.busy_since[index] = 0
        self._write(group.agents, step, row)
        self.segment.waits.begin(index)
        self._request(BASE, index)

    def _write(self, agents: slice, step: Step, row: int) -> None:
        arrays, ring = self.segment.arrays, self.layout.ring
        before, now = (row - 1) % ring if row else 0, row % ring
        was_reset = arrays["flags"][agents, before] & RESET != 0
        done = step.terminated | step.truncated
        ends = (step.terminated | step.life_lost) * np.uint8(TERMINATED) | step.truncated * np.uint8(TRUNCATED)
        age = np.minimum(arrays["age"][agents, before].astype(np.int32) + 1, 255)
        if row:
            arrays["reward"][agents, before] = step.reward
            arrays["flags"][agents, before] |= ends
        arrays["frame"][agents, now] = step.frame
        if self.layout.spec.vectors:
            arrays["vector"][agents, now] = step.vector
        arrays["flags"][agents, now] = was_reset * FIRST | done * RESET
        arrays["age"][agents, now] = np.where(was_reset, 0, age)
        for name, field in self.layout.extra.items():
            arrays[name][agents, now] = field.converted(step.extra[field.key])
        for task in self.layout.spec.priorities:
            arrays[f"{task}.priority"][agents, now] = 0
        self.segment.end[agents] = row
        self._count(agents, step.reward, done)

    def _count(self, agents: slice, reward: np.ndarray, done: np.ndarray) -> None:
        self.score[agents] += reward
        if not done.any():
            return
        ended = agents.start + np.nonzero(done)[0]
        queues.put(self.outbox.episodes, self.score[ended].astype(queues.EPISODE))
        self.score[ended] = 0

    def _request(self, queue: int, index: int) -> None:
        queues.put(self.outbox.requests[queue], np.array([(self.process, index)], queues.REQUEST))

    def _close_rollout(self, index: int) -> None:
        """Ends the full rollout, samples sequences of each task for it and requests their bootstraps."""
        group = self.groups[index]
        group.first = self._end(group)
        group.closed += 1
        self.segment.busy_since[index] = time.monotonic()  # a task may hang as an environment may
        group.sequences = {task.name: self._sample(group, task) for task in self.tasks}
        for queue, head in enumerate(self.heads):
            if queue != BASE:
                first, length = group.sequences[head][:2]
                steps = self.segment.arrays[f"{head}.bootstrap_step"]
                steps[group.agents] = np.where(length > 0, first + length, -1).reshape(-1, *steps.shape[1:])
                group.awaited.add(queue)
                self._request(queue, index)
        for task in self.tasks:
            if task.name not in self.heads:
                self._write_targets(group, task)
        self.segment.busy_since[index] = 0
        if not group.awaited:
            self._publish(group)

    def _replay(self, group: Group, task: AuxiliaryTask) -> Replay:
        """The replays of a group as they were when its last rollout was full, once for each sequence of a task.

        The group may have gone on since.
        """
        agents = np.arange(group.agents.start, group.agents.stop)
        return self.segment.replay(np.repeat(agents, task.per_rollout), group.first)

    def _sample(self, group: Group, task: AuxiliaryTask) -> Drawn:
        replay = self._replay(group, task)
        agents = range(group.agents.start, group.agents.stop)
        draws = np.concatenate([self.rngs[agent].random((task.per_rollout, DRAWS), np.float32) for agent in agents])
        found = sample(task, replay, draws)
        too_few = self.config.replay_fill == "full" and replay.end - replay.oldest < self.layout.replay_size
        return found._replace(length=np.zeros_like(found.length)) if too_few else found

    def _bootstrapped(self, index: int, queue: int) -> None:
        group = self.groups[index]
        (task,) = (task for task in self.tasks if task.name == self.heads[queue])
        self.segment.busy_since[index] = time.monotonic()
        self._write_targets(group, task)
        self.segment.busy_since[index] = 0
        group.awaited.remove(queue)
        if not group.awaited:
            self._publish(group)

    def _write_targets(self, group: Group, task: AuxiliaryTask) -> None:
        arrays, agents = self.segment.arrays, group.agents
        slot = (group.closed - 1) % self.layout.slots
        sequences = group.sequences[task.name]
        kept = arrays[f"{task.name}.sequence"][agents, slot]
        kept[...] = np.stack(sequences[:2], axis=1).reshape(kept.shape)
        if not sequences.length.any():
            return
        bootstraps = arrays.get(f"{task.name}.bootstrap")
        if bootstraps is not None:
            bootstraps = bootstraps[agents].reshape(-1, *bootstraps.shape[2:])
        out = {name: array[agents, slot] for name, array in self.targets[task.name].items()}
        write_targets(task, self._replay(group, task), sequences, bootstraps, out)

    def _publish(self, group: Group) -> None:
        """Passes the rollout before `first` to the trainers."""
        first = group.first - self.layout.spec.t_max
        records = [(self.process, agent, first) for agent in range(group.agents.start, group.agents.stop)]
        queues.put(self.outbox.rollouts, np.array(records, queues.ROLLOUT))

    def get_state(self) -> dict[str, Any]:
        """The state that an exact resume needs in addition to the segment.

        It contains groups, random states, scores and the actions of the current episodes. It uses plain values and
        NumPy's own classes only, so that saved states do not depend on the names of this library's classes.
        """
        names = ("rngs", "episode", "score", "actions")
        return {name: getattr(self, name) for name in names} | {"groups": [group.get_state() for group in self.groups]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a state returned by `get_state`. Environments are restored by replaying their episodes' actions."""
        for name, value in state.items():
            if name != "groups":
                setattr(self, name, value)
        for group, env, saved in zip(self.groups, self.envs, state["groups"], strict=True):
            group.set_state(saved)
            agents = range(group.agents.start, group.agents.stop)
            seeds = [self._episode_seed(agent) for agent in agents]
            restore(env, seeds, [np.array(self.actions[agent], np.int32) for agent in agents])

    def close(self) -> None:
        """Closes the environments."""
        for env in self.envs:
            env.close()
