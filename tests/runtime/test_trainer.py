from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import Counter

import numpy as np
import pytest
from helpers import Bench, FakeLearner, value

from gunreal.config.resolve import resolved
from gunreal.config.schema import Config
from gunreal.experience.replay import RESET
from gunreal.records.metrics import RunMetrics
from gunreal.runtime.trainer import Batch, Trainer, takes_part, updates


def test_trainer_reports_each_update():
    flags = {"learning_rate": 0.5, "learning_rate_end": 0.1, "entropy": 0.04, "entropy_end": 0.0}
    with Bench("--T", agents=2, steps=100, **flags) as bench:
        metrics = RunMetrics()
        rates = []

        class Learner:
            version = 0

            def ready(self):
                pass

            def train(self, batch, learning_rate, entropy, progress):
                assert sorted(batch["base"]) == ["action", "mask", "observations", "returns"]
                rates.append((learning_rate, entropy, progress))
                return {"loss_total": 2.0, "skipped": float(len(rates) == 2), "version": 9}

        trainer = Trainer(Learner(), bench.config, metrics)
        bench.start()
        bench.step(5, train=False)
        metrics.acted(25)
        trainer.work(bench.batcher.next(0))
        bench.step(5, train=False)
        trainer.work(bench.batcher.next(0))
        line = metrics.snapshot({}, {})
        assert np.array(rates) == pytest.approx(np.array([(0.4, 0.03, 0.25)] * 2))
        assert (line["updates"], line["trained"], line["skipped"], line["loss_total"]) == (2, 16, 1, 2.0)
        assert (line["policy_lag"], line["policy_lag_max"]) == (9, 9)  # the fake learner acted at version 0
        assert line["learning_rate"] == pytest.approx(0.4)
        assert bench.batcher.next(0) is None


class Watched(FakeLearner):
    """Calls a function before each update."""

    def __init__(self, seen=lambda batch: None):
        super().__init__()
        self._seen = seen

    def train(self, batch, *now):
        self._seen(batch)
        return super().train(batch, *now)


def trained(bench, learner, **options):
    """What the trainer reports after the first batch of a run."""
    metrics = RunMetrics()
    bench.start().step(5, train=False)
    config = dataclasses.replace(bench.config, runner="parallel")  # a serial run holds no weights
    Trainer(learner, config, metrics, **options).work(bench.batcher.next(0))
    return metrics.snapshot({}, {})


PPO = {"agents": 4, "steps": 100, "objective": "ppo", "min_batch": 16}
PPO |= {"objective_args": {"epochs": 3, "minibatches": 2}}


def overlapping(epochs):
    return {"objective_args": {**PPO["objective_args"], "overlap": epochs}}


def test_steps_count_once_if_a_batch_has_fewer_rollouts_than_minibatches():
    with Bench(
        "--T", **(PPO | {"agents": 2, "objective_args": {"epochs": 2, "minibatches": 3}, "min_batch": 8})
    ) as bench:
        line = trained(bench, FakeLearner())
        assert (line["updates"], line["trained"]) == (4, 8)


@pytest.mark.parametrize(
    ("options", "released"),
    [
        (overlapping(1), [0, 0, 0, 0, 1, 1]),
        (overlapping(0), [0] * 6),
        (overlapping(5), [1] * 6),
        ({"objective": "a3c", "objective_args": {}}, [1]),
    ],
)
def test_agents_go_on_in_the_last_epochs_with_the_weights_from_before_them(options, released):
    with Bench("~", **(PPO | options)) as bench:
        taken, seen = bench.members[0].segment.trained, []
        learner = Watched(lambda batch: seen.append(taken.tolist()))
        trained(bench, learner)
        assert seen == [[count] * 4 for count in released] and taken.tolist() == [1] * 4
        assert learner.acting_version == released.count(0)


def rows_of(batch):
    return np.concatenate(batch["base"]["observations"])


def test_a_phase_follows_every_second_batch():
    """It learns from both, in three passes of two minibatches, which have what was predicted before it."""
    fields = {"objective": "objectives:Phased", "objective_args": {"epochs": 1, "minibatches": 2}, "tasks": ("vr",)}
    with Bench("~", **(PPO | fields)) as bench:
        learner, metrics = FakeLearner(), RunMetrics()
        trainer = Trainer(learner, bench.config, metrics)
        bench.start()
        for _ in range(4):
            while (batch := bench.batcher.next(0)) is None:
                bench.step(1, train=False)
            trainer.work(batch)
        line = metrics.snapshot({}, {})
    phases = ["old" in batch for batch in learner.trained]
    assert phases == ([False] * 4 + [True] * 12) * 2
    assert not any("vr" in batch for batch, phase in zip(learner.trained, phases, strict=True) if phase)
    for batch in learner.trained[4:16]:
        np.testing.assert_array_equal(batch["old"]["value"].ravel(), value(rows_of(batch)))
    once, seen = (
        Counter(row.tobytes() for batch in learner.trained[part] for row in rows_of(batch))
        for part in (slice(4), slice(4, 16))
    )
    assert seen == {row: 3 * count for row, count in once.items()}
    assert line["updates"] == 32 and line["trained"] == 64 and "phase_loss_total" in line


def test_a_run_in_a_hurry_leaves_the_rest_of_a_batch():
    """It ends after the present update. Its agents are told that their rollouts have been taken."""
    with Bench("~", **PPO) as bench:
        learner = FakeLearner()
        trained(bench, learner, hurried=lambda: len(learner.trained) == 2)
        assert len(learner.trained) == 2 and bench.members[0].segment.trained.tolist() == [1] * 4


def test_ppo_takes_advantages_and_learns_from_a_batch_several_times():
    with Bench("--T", **PPO) as bench:
        learner = FakeLearner()
        line, seen = trained(bench, learner), [batch["base"] for batch in learner.trained]
        assert [set(base) for base in seen] == [
            {"action", "advantage", "log_mu", "mask", "observations", "returns"}
        ] * 6
        assert (line["updates"], line["trained"], line["batch_train"]) == (6, 16, 8)
        epoch = np.concatenate([base["advantage"][base["mask"] > 0] for base in seen[:2]])
        assert epoch.mean() == pytest.approx(0, abs=1e-5) and epoch.std() == pytest.approx(1, abs=1e-3)


def test_every_batch_and_every_seed_has_an_order_of_minibatches_of_its_own():
    rollouts = np.arange(8, dtype=np.float32)[:, None]
    batch = Batch({"base": {"mask": np.ones((8, 1), np.float32), "observations": rollouts}}, {}, {})

    def order(seed, version):
        config = resolved(Config(seed=seed, objective="ppo", objective_args={"epochs": 1, "minibatches": 4}))
        return [x for part in updates(batch, config, version) for x in part["base"]["observations"][:, 0].tolist()]

    assert order(1, 0) == order(1, 0) and sorted(order(1, 0)) == list(range(8))
    assert order(1, 0) != order(1, 4) and order(1, 0) != order(2, 0)


@pytest.mark.parametrize(
    ("flags", "sizes", "expected"),
    [
        ({"objective": "a3c"}, {3}, [1, 0, 1, 0]),
        (
            {"objective": "ppo", "objective_args": {"epochs": 2, "minibatches": 2}},
            {1, 2},
            [1, 0, 0, 0] * 2 + [1, 1, 0, 0] + [0, 1, 0, 0],
        ),
    ],
)
def test_tasks_take_part_in_a_share_of_the_updates(flags, sizes, expected):
    """Updates with and without them are compiled before training, for minibatches of both sizes."""
    with Bench("~", ["vr"], agents=3, min_batch=12, task_share=0.5, **flags) as bench:
        compiled, learner = [], FakeLearner()
        learner.warm_up = compiled.append
        trainer = Trainer(learner, bench.config, RunMetrics())
        bench.start()
        for batch in bench.step(30)[:4]:
            trainer.warm_up(batch)
            trainer.work(batch)
        assert ["vr" in batch for batch in learner.trained] == [bool(part) for part in expected]
        kinds = [("vr" in batch, len(batch["base"]["mask"])) for batch in compiled]
        assert sorted(kinds) == sorted([*itertools.product((False, True), sizes)] * 4)
        assert all("version" not in batch["base"] for batch in compiled)


def test_priorities_are_kept_with_the_steps_that_were_learned_from():
    def rated(observations):
        return 2 + np.sin(observations.sum(-1))

    class Learner(FakeLearner):
        def train(self, batch, *rates):
            found = rated(batch["rated"]["observations"])
            found[0] = np.nan
            return super().train(batch, *rates) | {"priorities": {"rated": found}}

    with Bench("--T -----t T t", ["helpers:Rated"], members=2, agents=3, min_batch=24) as bench:
        trainer = Trainer(Learner(), bench.config, RunMetrics())
        bench.start()
        for _ in range(60):
            for batch in bench.step():
                trainer.work(batch)
        for member in bench.members:
            kept, end = member.segment.arrays["rated.priority"], int(member.segment.end[0])
            assert np.mean(kept > 0) > 0.3 and not kept[:, end % bench.layout.ring].any()
            for agent, row in np.argwhere(kept > 0):
                step, replay = end - (end - row) % bench.layout.ring, member.segment.replay(np.array([agent]))
                if step > bench.layout.ring - 5 and step >= replay.oldest:
                    seen = replay.observations(np.array([[step]]))[0, 0]
                    assert kept[agent, row] == pytest.approx(rated(seen), rel=1e-5)
                    assert not replay.get("flags", np.array([step]), 1) & RESET


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 2 / 3, 1.0])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_the_share_is_even(share, stride):
    taken = np.cumsum([takes_part(update, share) for update in range(0, 300 * stride, stride)])
    assert abs(taken - share * np.arange(1, 301)).max() < 3


def test_concurrent_updates_are_limited():
    computing, most, two = [], [], threading.Barrier(2, timeout=60)

    def together(batch):
        computing.append(1)
        two.wait()  # breaks unless a second one comes
        most.append(len(computing))
        two.wait()
        computing.pop()

    trainer = Trainer(Watched(together), resolved(Config(objective="a3c")), RunMetrics(), at_once=2)
    batch = {"base": {"mask": np.ones((1, 5), np.float32)}, "acted": {"version": np.zeros((1, 5), int)}}
    batches = [Batch({**batch, "base": dict(batch["base"])}, {}, {}) for _ in range(6)]
    threads = [threading.Thread(target=trainer.work, args=(each,)) for each in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [2] * 6
