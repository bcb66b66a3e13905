"""The papers' experiments about learning that `reproduce.py` trains: a table, in which a new one is a new entry.

Experiments on Atari games alone are in `atari_papers.py`, those about speed in `speed.py`.
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

_ALL = (
    LearningExperiment(
        name="fig7",
        title="GUNREAL figure 7: stacked gray frames against a single RGB frame",
        shows="The paper (section 3.1): on nav_maze_static_01 stacked gray frames learn faster; single RGB frames did "
        "not give the desired learning abilities. It states no numbers.",
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
        shows="The paper (sections 4.3, 4.4): GUNREAL reaches 15, five times UNREAL's score, and finishes 1.6 times "
        "sooner; GA3C and UNREAL collect apples only. Its UNREAL is another program, without LSTM and on single RGB "
        "frames; here the tasks on that input stand for it, so that compute times are not comparable with the paper's.",
        envs=NAV_MAZE,
        settings=three_systems({}, {"score": 15}, {"score": 3}),
        steps=1_500_000,
    ),
    LearningExperiment(
        name="fig14",
        title="GUNREAL figure 14: seekavoid_arena_01",
        shows="The paper (section 4.3): UNREAL 31, GUNREAL 27, GA3C 25; GUNREAL needs 73 % fewer steps than GA3C to "
        "reach 25 and finishes 1.5 times sooner than UNREAL. Its UNREAL is another program, without LSTM and on single "
        "RGB frames; here the tasks on that input stand for it, so that compute times are not comparable.",
        envs=ARENA,
        settings=three_systems({"score": 25}, {"score": 27, "ratio": 0.27}, {"score": 31}),
        steps=1_500_000,
    ),
    LearningExperiment(
        name="ablation",
        title="Which auxiliary task carries the gain",
        shows="Each of UNREAL's tasks alone, none, and all. The paper names the tasks together with stacked frames as "
        "the reason of its gain on nav_maze_static_01 (section 4.4) and takes none of them out.",
        envs=NAV_MAZE,
        settings={
            "base": Setting("base", {"tasks": ()}),
            ALL: Setting("pc+vr+rp", {"tasks": TASKS}),
            "pc": Setting("pc (pixel control)", {"tasks": ("pc",)}),
            "vr": Setting("vr (value replay)", {"tasks": ("vr",)}),
            "rp": Setting("rp (reward prediction)", {"tasks": ("rp",)}),
        },
        steps=1_500_000,
    ),
    LearningExperiment(
        name="recurrence",
        title="The LSTM torso and V-trace, each alone",
        shows="UNREAL has an LSTM, which the GUNREAL paper left out and names as its next step (section 7). V-trace is "
        "IMPALA's correction of policy lag (Espeholt et al. 2018), instead of GA3C's epsilon in log pi.",
        envs=NAV_MAZE,
        settings={
            "small": Setting("feed-forward, epsilon", {"tasks": TASKS, "network": "auto", "correction": "epsilon"}),
            "lstm": Setting("LSTM, epsilon", {"tasks": TASKS, "network": "lstm", "correction": "epsilon"}),
            "vtrace": Setting("feed-forward, V-trace", {"tasks": TASKS, "network": "auto", "correction": "vtrace"}),
        },
        steps=1_500_000,
        reference="small",
    ),
    LearningExperiment(
        name="ga3c-fig2",
        title="GA3C figure 2: dynamic adjustment from 1/1/1 agents/predictors/trainers",
        shows="The paper (section 4.3) moves N_A, N_P or N_T by one every minute, at random (annealing), and gives no "
        "numbers. Every agent is a process, as in the paper, where nothing else is said. Fixed settings run at other "
        "times than the scheduled ones: other programs on the machine disturb the comparison.",
        envs=PONG,
        settings={
            "queue": Setting("queue, from 1/1/1", {**counts(1), "scheduler": "queue"}),
            "annealing": Setting("annealing, from 1/1/1", {**counts(1), "scheduler": "annealing"}),
            "queue16": Setting("queue, from one process of 16", {**counts(16, each=16), "scheduler": "queue"}),
            "1-1-1": Setting("fixed 1/1/1", {**counts(1), "scheduler": "off"}),
            "4-1-1": Setting("fixed 4/1/1", {**counts(4), "scheduler": "off"}),
            "8-1-1": Setting("fixed 8/1/1", {**counts(8), "scheduler": "off"}),
            "16-1-1": Setting("fixed 16/1/1", {**counts(16), "scheduler": "off"}),
            "32-2-2": Setting("fixed 32/2/2", {**counts(32, 2, 2), "scheduler": "off"}),
            "default": Setting("fixed 32/1/1, 16 agents a process", {**counts(32, each=16), "scheduler": "off"}),
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
        title="GA3C figure 5: settings of agents/predictors/trainers against learning",
        shows="The paper (section 5.2), 3 hours of training: 1/1/1 and 16/1/1 use the GPU badly and learn slowly; the "
        "dynamic configuration plays slightly fewer frames than the optimal one in the same time and scores nearly the "
        "same. It states no scores. What is best here is the library's default: 32 agents in two processes.",
        envs=PONG,
        settings={
            "1-1-1": Setting("1/1/1", {**counts(1), "scheduler": "off"}),
            "16-1-1": Setting("16/1/1", {**counts(16), "scheduler": "off"}),
            "best": Setting("32/1/1, 16 agents a process", {**counts(32, each=16), "scheduler": "off"}),
            "annealing": Setting("annealing, from 1/1/1", {**counts(1), "scheduler": "annealing"}),
            "queue": Setting("queue, from 1/1/1", {**counts(1), "scheduler": "queue"}),
        },
        common=GA3C,
        steps=FOREVER,
        minutes=180,
        reference="best",
        panels=(("seconds", "score_mean"), ("seconds", "step")),
    ),
    LearningExperiment(
        name="ga3c-fig7",
        title="GA3C figure 7: the smallest training batch against learning",
        shows="The paper (section 5.3): from one rollout (5 agent steps) to 40, larger batches lower the policy lag "
        "and learning becomes faster and more stable; 20 to 40 are best, and beyond it slows down in some games. Pong "
        "hardly suffers from small ones. It states no scores.",
        envs=PONG,
        settings={
            "rollout": Setting("one rollout (5 agent steps)", {"min_batch": 5}),
            **{str(size): Setting(f"{size} agent steps", {"min_batch": size}) for size in (20, 40, 80)},
        },
        common={name: value for name, value in GA3C.items() if name != "min_batch"},
        steps=6_000_000,
        reference="rollout",
    ),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}
