"""The parts of a run around a fake learner and a scripted environment, wired in one thread; for the modules' tests."""

from __future__ import annotations

import dataclasses

import numpy as np
import scripted_env

from gunreal.acting.agent import Outbox
from gunreal.acting.pool import Local, Pool
from gunreal.acting.predictor import BasePredictor, TaskPredictor
from gunreal.config.derived import rollouts_per_batch
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config
from gunreal.experience import queues
from gunreal.experience.sequences import Sequences
from gunreal.experience.spec import RecordedField, Spec
from gunreal.learning.task import BASE, AuxiliaryTask, prediction_heads
from gunreal.runtime.system import make_layout
from gunreal.runtime.trainer import Batcher
from gunreal.tasks.registry import load_tasks


class FakeLearner:
    """Predictions that a test can work out by itself, and a record of what was asked."""

    def __init__(self):
        self.version = self.acting_version = 0
        self.asked: list[tuple[str, np.ndarray]] = []
        self.trained: list[dict] = []

    def predict(self, head, observations, past=None):
        self.asked.append((head, observations.copy()))
        if head == "base":
            return logits(observations), value(observations)
        return (task_bootstrap(observations),)

    def recall(self, batch):
        shape, observations = batch["base"]["mask"].shape, np.concatenate(batch["base"]["observations"])
        return {"logits": logits(observations).reshape(*shape, 3), "value": value(observations).reshape(shape)}

    def ready(self):
        pass

    def hold(self):
        self.acting_version = self.version

    def train(self, batch, learning_rate, entropy, progress):
        self.trained.append(batch)
        self.version += 1
        return {"loss_total": 1.0, "skipped": 0.0, "version": self.version - 1}


def logits(observations):
    """float32 `[n, 3]`."""
    tag = observations.reshape(len(observations), -1).sum(1)
    return np.stack([np.sin(tag), np.cos(tag), np.sin(2 * tag)], 1).astype(np.float32)


def value(observations):
    """float32 `[n]`."""
    return np.cos(observations.reshape(len(observations), -1) @ np.arange(1, observations[0].size + 1)).astype(
        np.float32
    )


def task_bootstrap(observations):
    """float32 `[n]`."""
    return np.sin(observations.reshape(len(observations), -1).sum(1)).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Tracer(AuxiliaryTask):
    """A task whose targets say what was sampled. A quarter of the time it finds nothing."""

    name = "tracer"
    rows: int = 3
    replays: int = 1

    @staticmethod
    def bootstrap(outputs):
        return outputs["value"][:, 0]

    def length(self, t_max):
        return self.rows

    def record(self, spec):
        return {"deep": RecordedField("depth", (), "float32")}

    def sample(self, replay, draws):
        held = replay.end - replay.oldest
        first = replay.oldest + (draws[:, 1] * held).astype(int)
        length = np.minimum(replay.sequence_length(first, self.rows), 1 + (draws[:, 2] * self.rows).astype(int))
        return Sequences(first, np.where((draws[:, 0] < 0.25) | (held < self.rows), 0, length))

    def targets(self, replay, sequences, bootstraps):
        return {"sequence": np.stack(sequences, axis=1), "bootstrap": bootstraps}


@dataclasses.dataclass(frozen=True)
class Lone(Tracer):
    """The same without a bootstrap: it has no queue."""

    name = "lone"
    bootstrap = None

    def targets(self, replay, sequences, bootstraps):
        assert bootstraps is None
        return {"sequence": np.stack(sequences, axis=1)}


@dataclasses.dataclass(frozen=True)
class Rated(Lone):
    """The same with priorities."""

    name = "rated"
    prioritized = True
    replays: int = 2


class Bench:
    """Agents, predictors and the batcher of a run, moved by hand.

    Args:
      script: episodes of the scripted environment.
      tasks: names of the tasks.
      members: number of segments of `agents` agents each.
      options: fields of the configuration.
    """

    def __init__(self, script="---T", tasks=(), members=1, agents=2, stack=2, **options):
        defaults = {"t_max": 4, "min_batch": 8, "replay_size": 40, "discount": 0.5, "runner": "serial"}
        defaults |= {"objective": "a3c", "reward_clip": 1.0}
        if options.get("objective", "a3c") == "a3c":
            defaults |= {"objective_args": {"correction": "epsilon"}}
        self.config = config = resolved(
            Config(
                env=scripted_env.SCRIPTED,
                env_args={"script": script},
                tasks=tuple(tasks),
                agents=members * agents,
                agents_per_process=agents,
                **(defaults | options),
            )
        )
        self.tasks = load_tasks(config.tasks, config.task)
        rated = tuple(task.name for task in self.tasks if task.prioritized)
        self.spec = Spec((3,), stack, "float32", 3, config.t_max, config.discount, config.reward_clip, priorities=rated)
        self.learner, self.pool = FakeLearner(), Pool(rollouts_per_batch(config))
        self.layout = make_layout(config, self.spec, self.tasks, self.learner)
        self.learner.asked.clear()
        heads = prediction_heads(self.tasks)
        self.requests = {head: queues.Pipe(queues.REQUEST) for head in heads}
        self.rollouts, self.episodes = queues.Pipe(queues.ROLLOUT), queues.Pipe(queues.EPISODE)
        outbox = Outbox(
            tuple(p.write_fd for p in self.requests.values()), self.rollouts.write_fd, self.episodes.write_fd
        )
        self.outbox = outbox
        self.predictors = {"base": BasePredictor(self.pool, self.learner, seed=0)}
        for queue, head in enumerate(heads):
            if queue != BASE:
                self.predictors[head] = TaskPredictor(self.pool, self.learner, head, queue)
        self.batcher = Batcher(self.pool, config, self.spec, self.tasks, self.rollouts)
        self.members = [self.new_member() for _ in range(members)]

    def new_member(self):
        """One more segment of agents, not started."""
        member = Local(self.pool.next_process(), self.config, self.layout, self.tasks, self.outbox)
        self.pool.add(member)
        return member

    def start(self):
        """Resets the environments and answers the first requests."""
        for member in self.members:
            member.worker.start()
        self.serve()
        return self

    def serve(self, *names):
        """Answers all requests of the queues; of all queues when none is named."""
        for name in names or self.requests:
            records = self.requests[name].get(1000, 0)
            if len(records):
                self.predictors[name].serve(records)

    def step(self, rounds=1, train=True):
        """Every group that may does a step in each round; returns the batches that were full meanwhile."""
        batches = []
        for _ in range(rounds):
            for member in self.members:
                member.step()
            self.serve()
            while train and (batch := self.batcher.next(0)) is not None:
                batch.release()
                batches.append(batch)
        return batches

    def record(self):
        """Writes down from now on what all environments are told and answer: a `History` for each agent, by member."""
        return [[History(member.worker, agent) for agent in range(self.layout.agents)] for member in self.members]

    def close(self):
        """Closes everything."""
        for member in self.members:
            member.close()
        for pipe in (*self.requests.values(), self.rollouts, self.episodes):
            pipe.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class History:
    """An agent's life as its environment saw it, and what follows from that by the library's rules; made step by step.

    Row k holds the k-th observation; `action[k]`, `reward[k]`, `terminated[k]`, `truncated[k]` are of the step from it.
    """

    def __init__(self, worker, agent):
        (index,) = (i for i, group in enumerate(worker.groups) if group.agents.start <= agent < group.agents.stop)
        place = agent - worker.groups[index].agents.start
        self.frame, self.begins, self.action, self.reward = [], [], [], []
        self.terminated, self.truncated, self.seeds = [], [], []
        env = worker.envs[index]
        original = env.step

        def spy(actions, reset, seeds):
            if self.frame:
                self.action.append(int(actions[place]))
            self.begins.append(bool(reset[place]))
            self.seeds += [int(seeds[place])] if reset[place] else []
            step = original(actions, reset, seeds)
            if self.frame:
                self.reward.append(float(step.reward[place]))
                self.terminated.append(bool(step.terminated[place]))
                self.truncated.append(bool(step.truncated[place]))
            self.frame.append(step.frame[place].copy())
            return step

        env.step = spy

    def is_final(self, k):
        """Whether row k is an episode's final observation, on which only a reset happens."""
        return k > 0 and (self.terminated[k - 1] or self.truncated[k - 1])

    def age(self, k):
        """Steps since the episode's start."""
        return 0 if self.begins[k] else 1 + self.age(k - 1)

    def observation(self, k, stack):
        """The newest frames of the episode, oldest first, its first one repeated."""
        return np.concatenate([self.frame[max(k - back, k - self.age(k))] for back in reversed(range(stack))])

    def value(self, k, stack):
        """What the fake learner says of row k."""
        return float(value(self.observation(k, stack)[None])[0])

    def returns(self, first, length, spec):
        """n-step returns of rows `first ...`: `(returns, mask)`."""

        def after(k):
            if self.terminated[k]:
                return 0.0
            if self.truncated[k] or k + 1 == first + length:
                return self.value(k + 1, spec.stack)
            return one(k + 1)

        def one(k):
            clip = spec.reward_clip or np.inf
            return min(max(self.reward[k], -clip), clip) + spec.discount * after(k)

        rows = range(first, first + length)
        return [one(k) for k in rows], [float(not self.is_final(k)) for k in rows]
