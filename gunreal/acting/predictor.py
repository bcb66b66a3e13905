"""The predictors: threads that serve all waiting requests of a queue at once (GUNREAL, algorithms 4, 7 and 8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from gunreal.acting.pool import Member, Pool
from gunreal.experience.replay import Past, concatenate_pasts, empty_observations
from gunreal.experience.spec import Spec
from gunreal.learning.learner import Learner
from gunreal.learning.task import BASE, acting_head


class _Rows:
    """The requests of one batch, resolved to agents and steps. Requests of removed processes are dropped.

    `steps_of` returns the steps of agents, int `[n]`, or several of each, `[n, k]`. Negative ones are left out.
    """

    def __init__(self, pool: Pool, records: np.ndarray, steps_of: Callable[[Member, slice], np.ndarray]):
        self.parts: list[tuple[Member, list[int], tuple[np.ndarray, ...], np.ndarray]] = []
        groups: dict[int, list[int]] = defaultdict(list)
        for process, group in records.tolist():
            groups[process].append(group)
        for process, indices in groups.items():
            member = pool.get(process)
            if member is None:
                continue
            agents = np.concatenate([np.arange(member.groups[i].start, member.groups[i].stop) for i in indices])
            steps = np.concatenate([steps_of(member, member.groups[i]) for i in indices])
            asked, *more = np.nonzero(steps >= 0)
            self.parts.append((member, indices, (agents[asked], *more), steps[steps >= 0]))
        self.count = sum(len(steps) for _, _, _, steps in self.parts)

    @property
    def spec(self) -> Spec:
        """Shapes and constants, if there are requests."""
        return self.parts[0][0].segment.layout.spec

    def inputs(self, spec: Spec) -> tuple[np.ndarray, Past | None]:
        """The inputs of the network: observations, and the past if it needs one."""
        out = empty_observations(spec, self.count)
        start = 0
        for member, _, (agents, *_), steps in self.parts:
            member.segment.gather(agents, steps, out[start : start + len(steps)], spec)
            start += len(steps)
        pasts = [member.segment.past(agents, steps[:, None], spec) for member, _, (agents, *_), steps in self.parts]
        return out, concatenate_pasts(pasts)


class BasePredictor:
    """Serves the base queue: samples `a_t ~ pi(.|o_t)`, writes it with `log mu` and `V(o_t)`, and wakes the agents."""

    def __init__(self, pool: Pool, learner: Learner, seed: int | Sequence[int]):
        self._pool, self._learner = pool, learner
        self.rng = np.random.default_rng(seed)

    def serve(self, records: np.ndarray) -> int:
        """Serves requests `[n]`. Returns the number of predicted observations."""
        rows = _Rows(self._pool, records, lambda member, agents: member.segment.end[agents])
        if not rows.count:
            return 0
        version = self._learner.acting_version
        spec = rows.spec
        logits, value, *more = self._learner.predict(acting_head(spec), *rows.inputs(spec.acting))
        bonuses = {name: more.pop(0) for name in spec.bonuses}
        action, log_mu = sample_actions(logits, self.rng)
        start = 0
        for member, groups, (agents,), steps in rows.parts:
            part = slice(start, start + len(steps))
            at = (agents, steps % member.segment.layout.ring)
            arrays = member.segment.arrays
            arrays["action"][at], arrays["log_mu"][at], arrays["value"][at] = action[part], log_mu[part], value[part]
            arrays["version"][at] = version
            for name, array in bonuses.items():
                arrays[name][at] = array[part]
            if more:
                arrays["state"][agents, (steps + 1) % member.segment.layout.ring] = more[0][part]
            member.reply(BASE, groups)
            start = part.stop
        return rows.count


class TaskPredictor:
    """Serves the queue of one task. It computes the bootstraps of the task's sequences."""

    def __init__(self, pool: Pool, learner: Learner, task: str, queue: int):
        self._pool, self._learner, self._task, self._queue = pool, learner, task, queue

    def serve(self, records: np.ndarray) -> int:
        """Serves requests `[n]`. Returns the number of predicted observations."""
        rows = _Rows(
            self._pool, records, lambda member, agents: member.segment.arrays[f"{self._task}.bootstrap_step"][agents]
        )
        (bootstrap,) = self._learner.predict(self._task, *rows.inputs(rows.spec)) if rows.count else (np.empty(0),)
        start = 0
        for member, groups, places, steps in rows.parts:
            if len(steps):  # an empty part would not fit the shape of the mailbox
                member.segment.arrays[f"{self._task}.bootstrap"][places] = bootstrap[start : start + len(steps)]
            member.reply(self._queue, groups)
            start += len(steps)
        return rows.count


def sample_actions(logits: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Samples an action from the softmax of each row of logits, float32 `[n, A]`, with the Gumbel-max trick.

    Returns:
      Actions int32 `[n]`, and their log probabilities float32 `[n]`.
    """
    action = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    top = logits.max(axis=1, keepdims=True)
    log_sum = top[:, 0] + np.log(np.exp(logits - top).sum(axis=1))
    return action.astype(np.int32), logits[np.arange(len(action)), action] - log_sum
