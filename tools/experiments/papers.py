"""The learning experiments of the papers, which `reproduce.py` trains. To add an experiment, add an entry.

Experiments on Atari games are in `atari_papers.py`, and speed experiments are in `speed.py`.
"""

from __future__ import annotations

from experiments.table import (
    ALL,
    ARENA,
    FOREVER,
    GA3C,
    NAV_MAZE,
    PONG,
    RGB,
    STACK,
    TASKS,
    LearningExperiment,
    Setting,
    counts,
    three_systems,
)

_EPSILON = {"algorithm": "a3c", "correction": "epsilon"}

_ALL = (
    LearningExperiment(
        name="fig7",
        title="GUNREAL figure 7: stacked gray frames and single RGB frames",
        shows="In the paper (section 3.1), training on nav_maze_static_01 is faster with stacked gray frames, and "
        "single RGB frames do not give the desired learning abilities. The paper states no numbers.",
        envs=NAV_MAZE,
        settings={
            "rgb": Setting("single RGB frame", {"tasks": TASKS, **RGB}),
            "stack": Setting("4 stacked gray frames", {"tasks": TASKS, **STACK}),
        },
        steps=1_500_000,
        reference="rgb",
    ),
    LearningExperiment(
        name="fig13",
        title="GUNREAL figure 13: nav_maze_static_01",
        shows="In the paper (sections 4.3 and 4.4), GUNREAL reaches a score of 15, five times UNREAL's, and finishes "
        "1.6 times faster. GA3C and UNREAL only collect apples. The paper's UNREAL is a separate program, without an "
        "LSTM and with single RGB frames. Here, the auxiliary tasks on single RGB frames represent it, so the compute "
        "times can't be compared with the paper's.",
        envs=NAV_MAZE,
        settings=three_systems({}, {"score": 15}, {"score": 3}),
        steps=1_500_000,
    ),
    LearningExperiment(
        name="fig14",
        title="GUNREAL figure 14: seekavoid_arena_01",
        shows="In the paper (section 4.3), the scores are 31 (UNREAL), 27 (GUNREAL) and 25 (GA3C). GUNREAL reaches 25 "
        "in 73 % fewer steps than GA3C, and finishes 1.5 times faster than UNREAL. The paper's UNREAL is a separate "
        "program, without an LSTM and with single RGB frames. Here, the auxiliary tasks on single RGB frames "
        "represent it, so the compute times can't be compared with the paper's.",
        envs=ARENA,
        settings=three_systems({"score": 25}, {"score": 27, "ratio": 0.27}, {"score": 31}),
        steps=1_500_000,
    ),
    LearningExperiment(
        name="ablation",
        title="Ablation of the auxiliary tasks",
        shows="This experiment compares each of UNREAL's tasks alone with none and with all of them. The paper "
        "attributes its gain on nav_maze_static_01 to the tasks and the stacked frames together (section 4.4), and has "
        "no ablation.",
        envs=NAV_MAZE,
        settings={
            "base": Setting("no task", {"tasks": ()}),
            ALL: Setting("pc+vr+rp", {"tasks": TASKS}),
            "pc": Setting("pc (pixel control)", {"tasks": ("pc",)}),
            "vr": Setting("vr (value replay)", {"tasks": ("vr",)}),
            "rp": Setting("rp (reward prediction)", {"tasks": ("rp",)}),
        },
        steps=1_500_000,
    ),
    LearningExperiment(
        name="recurrence",
        title="Effects of an LSTM and of V-trace",
        shows="UNREAL uses an LSTM. GUNREAL does without it, and its paper names it as future work (section 7). "
        "V-trace is the off-policy correction of IMPALA (Espeholt et al. 2018). It replaces the epsilon that GA3C "
        "adds in log pi.",
        envs=NAV_MAZE,
        settings={
            "small": Setting("feed-forward, epsilon", {"tasks": TASKS, "network": "auto", **_EPSILON}),
            "lstm": Setting("LSTM, epsilon", {"tasks": TASKS, "network": "lstm", **_EPSILON}),
            "vtrace": Setting("feed-forward, V-trace", {"tasks": TASKS, "network": "auto", "algorithm": "a3c"}),
        },
        steps=1_500_000,
        reference="small",
    ),
    LearningExperiment(
        name="ga3c-fig2",
        title="GA3C figure 2: dynamic adjustment of the numbers of agents, predictors and trainers",
        shows="The scheduler of the paper (section 4.3) changes N_A, N_P or N_T by one every minute, at random. The "
        "paper gives no numbers. As in the paper, every agent is a process unless a setting says otherwise. The "
        "settings run one after the other, so other programs on the machine can affect the comparison.",
        envs=PONG,
        settings={
            "queue": Setting("queue scheduler, from 1/1/1", {**counts(1), "scheduler": "queue"}),
            "annealing": Setting("annealing scheduler, from 1/1/1", {**counts(1), "scheduler": "annealing"}),
            "queue16": Setting(
                "queue scheduler, from one process of 16 agents", {**counts(16, each=16), "scheduler": "queue"}
            ),
            "1-1-1": Setting("fixed 1/1/1", {**counts(1), "scheduler": "off"}),
            "4-1-1": Setting("fixed 4/1/1", {**counts(4), "scheduler": "off"}),
            "8-1-1": Setting("fixed 8/1/1", {**counts(8), "scheduler": "off"}),
            "16-1-1": Setting("fixed 16/1/1", {**counts(16), "scheduler": "off"}),
            "32-2-2": Setting("fixed 32/2/2", {**counts(32, 2, 2), "scheduler": "off"}),
            "default": Setting("fixed 32/1/1, 16 agents per process", {**counts(32, each=16), "scheduler": "off"}),
        },
        common={**GA3C, "scheduler_seconds": 10.0, "metrics_seconds": 5.0},
        steps=FOREVER,
        minutes=10,
        reference="1-1-1",
        target="tps",
        panels=tuple(("seconds", key) for key in ("tps", "agents", "predictors", "trainers")),
    ),
    LearningExperiment(
        name="ga3c-fig5",
        title="GA3C figure 5: effect of the numbers of agents, predictors and trainers on learning",
        shows="In the paper (section 5.2, 3 hours of training), 1/1/1 and 16/1/1 make poor use of the GPU and learn "
        "slowly. The dynamic configuration plays slightly fewer frames than the optimal one and scores nearly the "
        "same. The paper states no scores. Here, 32 agents in two processes are the optimal configuration.",
        envs=PONG,
        settings={
            "1-1-1": Setting("1/1/1", {**counts(1), "scheduler": "off"}),
            "16-1-1": Setting("16/1/1", {**counts(16), "scheduler": "off"}),
            "best": Setting("32/1/1, 16 agents per process", {**counts(32, each=16), "scheduler": "off"}),
            "annealing": Setting(
                "annealing scheduler, from 1/1/1", {**counts(1), "scheduler": "annealing", "scheduler_seconds": 60.0}
            ),
            "queue": Setting("queue scheduler, from 1/1/1", {**counts(1), "scheduler": "queue"}),
        },
        common=GA3C,
        steps=FOREVER,
        minutes=180,
        reference="best",
        panels=(("seconds", "score_mean"), ("seconds", "step")),
    ),
    LearningExperiment(
        name="ga3c-fig7",
        title="GA3C figure 7: effect of the minimum training batch size on learning",
        shows="In the paper (section 5.3), larger batches reduce the policy lag, and learning becomes faster and more "
        "stable, from one rollout (5 agent steps) up to 20 to 40 agent steps. Beyond that, learning slows down in some "
        "games. Small batches hardly affect Pong. The paper states no scores.",
        envs=PONG,
        settings={
            "rollout": Setting("one rollout (5 agent steps)", {"min_batch": 5}),
            **{str(size): Setting(f"{size} agent steps", {"min_batch": size}) for size in (20, 40, 80)},
        },
        common={name: value for name, value in GA3C.items() if name != "min_batch"},
        steps=6_000_000,
        reference="rollout",
    ),
    LearningExperiment(
        name="ba3c-fig3",
        title="Distributed BA3C figure 3: asynchronous and synchronous training",
        shows="In the paper (section 2.3, 64 nodes), the score of asynchronous training drops to zero after 50 "
        "minutes. Synchronous training does not show this. The paper states no numbers.",
        envs=("gunreal/Catch-v0",),
        settings={
            "sync": Setting("synchronous, 4 nodes", {"nodes": 4, "sync": "on"}),
            "async": Setting("asynchronous, 4 nodes", {"nodes": 4, "sync": "off"}),
        },
        common={"agents": 8, "agents_per_process": 8, "min_batch": 40, "tasks": (), "algorithm": "a3c"},
        steps=200_000,
        reference="sync",
    ),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}
