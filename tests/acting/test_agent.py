from __future__ import annotations

import copy
import itertools
import pickle

import helpers
import numpy as np
import pytest
from helpers import Bench

from gunreal.acting.pool import TaskFailure
from gunreal.experience.replay import FIRST, TERMINATED
from gunreal.tasks.value_replay import ValueReplay


def test_the_return_ends_with_a_life_and_the_episode_does_not(monkeypatch):
    with Bench("--~", ["helpers:Tracer"], agents=1) as bench:
        (env,) = bench.members[0].worker.envs
        stepped, calls = env.step, itertools.count()
        monkeypatch.setattr(env, "step", lambda *args: stepped(*args)._replace(life_lost=np.array([next(calls) == 3])))
        bench.start().step(6)
        read = bench.members[0].segment.read(np.zeros(1, int))
        assert read("flags", np.arange(6)[None]).tolist() == [[FIRST, 0, TERMINATED, 0, 0, 0]]
        assert read("age", np.arange(6)[None]).tolist() == [list(range(6))]
        np.testing.assert_array_equal(read("deep", np.arange(7)[None]), -read("frame", np.arange(7)[None])[..., 1])
        assert not len(bench.episodes.get(1000, 0))


def test_age_stops_at_255():
    with Bench("~", ["vr"], agents=1, replay_size=300, run_ahead=300) as bench:
        bench.start().step(270)
        age = bench.members[0].segment.arrays["age"][0, 250:270]
        assert age.tolist() == [*range(250, 255)] + [255] * 15


def test_episodes_are_reported_unclipped():
    with Bench("--T -----t", agents=3, members=2) as bench:
        histories = [history for of_member in bench.record() for history in of_member]
        bench.start().step(50)
        expected = []
        for history in histories:
            score = 0.0
            for k, reward in enumerate(history.reward):
                score += reward
                if history.is_final(k + 1):
                    expected.append(score)
                    score = 0.0
        scores = bench.episodes.get(1000, 0).tolist()
        assert sorted(scores) == sorted(expected)
        assert max(map(abs, scores)) > 1.5


def test_seeds_are_of_agent_and_episode():
    def seeds(**options):
        with Bench("--T", members=2, agents=2, **options) as bench:
            histories = bench.record()
            bench.start().step(20)
            return [history.seeds for of_member in histories for history in of_member]

    first, again, other = seeds(), seeds(), seeds(seed=2)
    assert first == again
    drawn = [seed for of_agent in first + other for seed in of_agent]
    assert len(drawn) >= 40 and len(set(drawn)) == len(drawn)


def test_a_group_steps_together_and_alone():
    with Bench("--T", agents=5) as bench:
        for member in bench.members:
            member.worker.start()
        assert bench.requests["base"].get(10, 0).tolist() == [(0, 0), (0, 1)]
        end = bench.members[0].segment.end
        assert end.tolist() == [0] * 5
        bench.predictors["base"].serve(np.array([(0, 1)], bench.requests["base"].dtype))
        bench.members[0].step()
        assert end.tolist() == [0, 0, 0, 1, 1]
        bench.members[0].step()  # nothing was answered
        assert end.tolist() == [0, 0, 0, 1, 1]


def test_a_group_requests_its_actions_before_the_next_group_steps():
    with Bench("--T", agents=2) as bench:
        bench.start().serve()
        waiting = []
        for env in bench.members[0].worker.envs:
            original = env.step
            env.step = lambda *a, o=original: waiting.append(bench.requests["base"].get(10, 0).tolist()) or o(*a)
        bench.members[0].step()
        assert waiting == [[], [(0, 0)]]


def test_bootstraps_do_not_stop_the_stepping(monkeypatch):
    """Rollouts wait for their bootstraps, agents don't: not before the next rollout is full.

    The targets are made from the replay as it was when the sequences were sampled.
    """
    ends, targets = [], ValueReplay.targets
    monkeypatch.setattr(
        ValueReplay, "targets", lambda self, replay, *rest: ends.append(replay.end) or targets(self, replay, *rest)
    )
    with Bench("--T", ["vr", "rp", "helpers:Tracer"], agents=1, min_batch=12) as bench:
        assert bench.layout.slots == 3
        bench.start()
        ends.clear()
        member = bench.members[0]
        for _ in range(30):
            member.step()
            bench.serve("base")
        assert member.segment.end[0] == 8 and len(bench.rollouts) == 0
        assert len(bench.requests["vr"]) == len(bench.requests["tracer"]) == 1
        bench.serve("vr")
        member.step()
        bench.serve("base")
        assert member.segment.end[0] == 8 and len(bench.rollouts) == 0  # the other task's is still owed
        bench.serve("tracer")
        member.step()
        assert ends == [4] and bench.rollouts.get(10, 0).tolist() == [(0, 0, 0)]  # the first rollout, not the newest
        assert len(bench.requests["vr"]) == 1  # and the second one asks for its own
        bench.step(30, train=False)
        assert bench.rollouts.get(10, 0)["first"].tolist() == [4, 8]


def test_the_time_that_tasks_take_is_watched_like_that_of_environments(monkeypatch):
    """A task that never returns is noticed as an environment is, and its process restarted."""
    seen = set()
    with Bench("~", tasks=("helpers:Tracer", "helpers:Lone")).start() as bench:
        (member,) = bench.members
        for cls in (helpers.Tracer, helpers.Lone):
            for name in ("sample", "targets"):
                original = getattr(cls, name)

                def watched(self, *args, original=original, called=(cls.name, name)):
                    seen.add((*called, bool(member.segment.busy_since.any())))
                    return original(self, *args)

                monkeypatch.setattr(cls, name, watched)
        bench.step(30)
        assert not member.segment.busy_since.any()
    assert seen == {(task, name, True) for task in ("tracer", "lone") for name in ("sample", "targets")}


def test_targets_of_other_names_than_in_the_dry_run_are_explained(monkeypatch):
    """One that is missing would leave that of an earlier rollout in its place. test_failing_tasks.py has others."""
    with Bench("~", tasks=("helpers:Lone",)).start() as bench:
        monkeypatch.setattr(helpers.Lone, "targets", lambda *_: {})
        with pytest.raises(TaskFailure, match=r"^task 'lone': names of targets vary \(\[\] and \['sequence'\]\)$"):
            bench.step(30)


def test_full_replay_is_waited_for():
    with Bench("~", ["vr"], agents=2, replay_size=10, replay_fill="full", run_ahead=5) as bench:
        bench.start()
        sequences = bench.members[0].segment.arrays["vr.sequence"][:, 0, 0]
        bench.step(12)
        assert bench.members[0].segment.end.tolist() == [12, 12] and not sequences[:, 1].any()
        bench.step(2)  # the rollout that ends with step 12 is closed
        assert (sequences[:, 1] > 0).all()


STATE = ("action", "reward", "flags", "age", "frame", "log_mu", "value", "version", "deep", "end", "trained")


@pytest.mark.parametrize("rounds", [0, 3, 4, 5, 6, 9, 22])
def test_state_goes_on_exactly(rounds):
    """Stopped anywhere in an episode or a rollout, with others under way, it lives the same life again."""
    options = {"tasks": ("helpers:Tracer", "vr"), "agents": 3, "stack": 3, "min_batch": 12, "replay_size": 10}
    with Bench("--T -----t T t ----t", **options) as bench, Bench("--T -----t T t ----t", **options) as resumed:
        bench.start().step(rounds)
        old, new = bench.members[0], resumed.members[0]
        replies = old.wake.get(100, 0)
        waiting = [(0, agent, first) for _, agent, first in bench.batcher.waiting]
        saved = pickle.dumps((old.worker.get_state(), bench.predictors["base"].rng))
        arrays = copy.deepcopy(old.segment.arrays)
        old.wake.put(replies)

        state, resumed.predictors["base"].rng = pickle.loads(saved)
        for name, array in new.segment.arrays.items():
            array[...] = arrays[name]
        new.worker.set_state(state)
        new.wake.put(replies)
        resumed.batcher.add(np.array(waiting, bench.rollouts.dtype))
        batches, again = bench.step(25), resumed.step(25)
        for name in STATE:
            np.testing.assert_array_equal(old.segment.arrays[name], new.segment.arrays[name], err_msg=name)
        assert len(batches) == len(again) >= 5
        for batch, other in zip(batches, again, strict=True):
            for part in ("base", "tracer", "vr"):
                for name, array in batch[part].items():
                    np.testing.assert_array_equal(array, other[part][name], err_msg=f"{part} {name}")
