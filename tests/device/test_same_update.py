"""One batch of experience changes the weights in a device run as it does in the trainers of the parallel runner."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax")
import jax  # noqa: E402
import recall  # noqa: E402
from device_runs import keras_on_jax  # noqa: E402
from rich_task import Prioritized  # noqa: E402

from gunreal.acting.pool import Member  # noqa: E402
from gunreal.config.derived import rates  # noqa: E402
from gunreal.config.schema import Config  # noqa: E402
from gunreal.device.environment import frames  # noqa: E402
from gunreal.device.program import Program  # noqa: E402
from gunreal.device.rollouts import with_time_axis  # noqa: E402
from gunreal.device.sharding import Places  # noqa: E402
from gunreal.experience.replay import Past  # noqa: E402
from gunreal.experience.spec import Spec  # noqa: E402
from gunreal.records.metrics import RunMetrics  # noqa: E402
from gunreal.runtime.system import build_learner, make_layout, on_this_machine  # noqa: E402
from gunreal.runtime.trainer import Batcher, Trainer  # noqa: E402
from gunreal.tasks.calls import write_targets  # noqa: E402
from gunreal.tasks.reward_prediction import RewardPrediction  # noqa: E402

pytestmark = keras_on_jax
AGENTS, TURNS = 8, 8
DRAWN = {}  # the sequences of the newest batch, by the name of the task


def told(kind):
    """A task of a kind that tells which sequences it draws, several for each rollout."""

    class Told(kind):
        replays = updates = 2

        def sample(self, replay, draws):
            found = super().sample(replay, draws)
            if replay.xp is jax.numpy:  # not in the dry run
                keep = lambda *one: DRAWN.update({self.name: type(found)(*map(np.array, one))})  # noqa: E731
                jax.debug.callback(keep, *found)
            return found

    return Told()


def as_rings(loop, config, spec, tasks, learner):
    """The steps of a device run as those of an agent process, with the sequences and targets of its tasks."""
    member = Member(0, make_layout(config, spec, tasks, learner))
    segment = member.segment
    arrays, end = segment.arrays, int(loop.store["end"])
    steps = end - 1 - np.arange(len(loop.store["age"]))
    for name, array in loop.store.items():
        if name in arrays and np.ndim(array):
            kept = np.asarray(array)[steps % len(array)]
            kept = kept[:, 0].swapaxes(0, 1) if kept.ndim > 1 else kept
            arrays[name][:, steps % segment.layout.ring] = np.minimum(kept, 255) if name == "age" else kept
    past = Past(*map(np.asarray, with_time_axis(loop.actors.past)))
    after = learner.predict("base", np.asarray(loop.actors.stack), past)[1]
    arrays["value"][:, end % segment.layout.ring] = after  # of the state after the rollouts
    segment.end[:] = end - 1
    for task in tasks:
        bootstraps, drawn, agents = None, DRAWN[task.name], np.repeat(np.arange(AGENTS), task.per_rollout)
        if task.bootstrap is not None:
            following = drawn.first + drawn.length
            observations = np.zeros((len(agents), *spec.observation), spec.dtype)
            segment.gather(agents, following, observations)
            (bootstraps,) = learner.predict(task.name, observations, segment.past(agents, following[:, None]))
        names = {name.partition(":")[2]: name for name in arrays if name.startswith(f"{task.name}:")}
        arrays[f"{task.name}.sequence"][:, 0] = np.stack(drawn[:2], axis=1).reshape(AGENTS, task.per_rollout, 2)
        out = {name: arrays[full][:, 0] for name, full in names.items()}
        write_targets(task, segment.replay(agents), drawn, bootstraps, out)
    return member


@pytest.mark.parametrize(
    ("objective", "options", "kinds"),
    [("ppo", {"minibatches": 1, "epochs": 3}, (Prioritized, RewardPrediction)), ("a3c", {}, ())],
    ids=["ppo with tasks", "a3c"],
)
def test_the_weights_after_an_update_are_the_same(objective, options, kinds):
    fields = {"runner": "device", "backend": "jax", "device_batches": 1, "objective_args": options}
    fields |= {"agents": AGENTS, "agents_per_process": AGENTS, "max_batch": AGENTS, "min_batch": AGENTS * 5, "t_max": 5}
    fields |= {"replay_size": 20, "network": "lstm", "hidden": 8, "frame_size": 20, "frame_stack": 2}
    tasks = [kind.name for kind in kinds]
    config = Config(env="recall:functional", objective=objective, reward_clip=0.6, tasks=tasks, **fields)
    config = on_this_machine(config)
    env, tasks = recall.functional(shown=2, told=True), tuple(map(told, kinds))
    spec = Spec((1, 20, 20), 2, "uint8", 2, config.t_max, config.discount, config.reward_clip, state=2 * config.hidden)
    spec = spec._replace(vectors=6, priorities=tuple(task.name for task in tasks if task.prioritized))
    learner, other = (build_learner(config, spec, tasks) for _ in range(2))
    convert = frames(config, spec, env.observation_space)
    program = Program(config, spec, tasks, learner, env, convert, Places(config))
    loop = program.start()
    for turn in range(TURNS):
        before = learner.get_state()
        loop, _ = program.turn(loop, turn, rates(config, 0))
    jax.effects_barrier()
    other.set_state(before)
    member = as_rings(loop, config, spec, tasks, other)
    end = int(loop.store["end"])
    first = end - config.t_max
    batch = Batcher(None, config, spec, tasks, None).gather([(member, agent, first) for agent in range(AGENTS)])
    assert all(batch[task.name]["mask"].any() for task in tasks)
    for task in spec.priorities:
        member.segment.arrays[f"{task}.priority"][:] = 0
    Trainer(other, config, RunMetrics()).work(batch)
    for task in spec.priorities:
        kept = np.asarray(loop.store[f"{task}.priority"])[:, 0].T
        steps = end - 1 - np.arange(kept.shape[1])
        own = member.segment.arrays[f"{task}.priority"][:, steps % member.segment.layout.ring]
        assert (own > 0).mean() > 0.2
        np.testing.assert_allclose(np.where(own > 0, kept[:, steps % kept.shape[1]], 0), own, rtol=1e-4, atol=1e-6)
    member.close()
    one, two = learner.get_state(), other.get_state()
    for name in (name for name in one if name.startswith(("weights/", "statistics/", "optimizer/"))):
        np.testing.assert_allclose(two[name], one[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert any(np.abs(one[name] - before[name]).max() > 1e-4 for name in one if name.startswith("weights/"))
