"""The papers' experiments that `tools/reproduce.py` trains: a table, in which a new one is a new entry.

Settings are fields of `gunreal.Config`; what none of them sets is the same for all and is chosen on the command line.
What is measured without learning from it is in `systems.py`.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

TASKS = ("pc", "vr", "rp")
ALL = "pc+vr+rp"
STACK = {"observation": "gray", "frame_stack": 4}
RGB = {"observation": "rgb", "frame_stack": 1}
NAV_MAZE = ("dmlab/nav_maze_static_01", "gunreal/NavMazeStatic-v0")
LEARNING = (("step", "score_mean"), ("seconds", "score_mean"))
# No clipping: the goal's +10 would be worth an apple. Entropy: with 0.01 the policy stayed at random's level.
MAZE: Mapping[str, Any] = {"reward_clip": 0.0, "entropy": 0.003}
ARENA = ("dmlab/seekavoid_arena_01", "gunreal/SeekAvoid-v0")
PONG = ("ALE/Pong-v5",)
GA3C: Mapping[str, Any] = {  # the constants of configs/ga3c_pong.toml, without what belongs to a machine
    "t_max": 5,
    "min_batch": 40,
    "optimizer": "rmsprop",
    "learning_rate": 3e-4,
    "learning_rate_end": 3e-4,
    "epsilon": 0.1,
    "max_grad_norm": 0.0,
    "reduction": "sum",
    "correction": "epsilon",
    "normalize_observations": "off",
    "normalize_returns": False,
}
FOREVER = 10**9  # agent steps: the budget of a run that time ends


class Setting(NamedTuple):
    """One of the things that are compared.

    Attributes:
      label: in the picture's legend and the table.
      fields: of `gunreal.Config`.
      paper: the paper's own numbers: "score", the final one; "ratio", steps to the reference's score over its steps.
    """

    label: str
    fields: Mapping[str, Any]
    paper: Mapping[str, float] = {}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is compared, and where.

    Attributes:
      name: on the command line and in the files' names.
      title: of the picture.
      shows: what the paper shows, and what to keep in mind when comparing; a note below the picture and the table.
      envs: the paper's environment, then its equivalent for machines without it.
      settings: by the name that is part of their runs' names; taken and drawn in this order.
      common: fields of all settings, unless the command line says another value.
    """

    name: str
    title: str
    shows: str
    envs: tuple[str, ...]
    settings: Mapping[str, Setting]
    common: Mapping[str, Any] = field(default_factory=dict)

    def env(self) -> str:
        """The first of `envs` that this machine has."""
        lab = importlib.util.find_spec("deepmind_lab") is not None
        return next((env for env in self.envs if lab or not env.startswith("dmlab/")), self.envs[-1])


@dataclass(frozen=True, kw_only=True)
class Learning(Experiment):
    """What is trained and how it is shown.

    Attributes:
      steps: budget of a run in agent steps, unless --steps says another.
      minutes: of training, at which a run ends before that, unless --minutes says another.
      reference: the setting that the others are measured against.
      target: what its table is about: "score", or "tps" for how soon a scheduler has found the best training rate.
      panels: pairs of keys of `metrics.jsonl`, (x axis, y axis); the picture has a panel for each.
    """

    steps: int
    minutes: float = math.inf
    reference: str = "base"
    target: str = "score"
    panels: tuple[tuple[str, str], ...] = LEARNING


def counts(agents: int, predictors: int = 1, trainers: int = 1, each: int = 1) -> dict[str, int]:
    """Fields for N_A, N_P and N_T with `each` agents in a process; one is what the paper has."""
    return {"agents": agents, "agents_per_process": each, "predictors": predictors, "trainers": trainers}


def three_systems(
    base: Mapping[str, float], gunreal: Mapping[str, float], unreal: Mapping[str, float]
) -> dict[str, Setting]:
    """GA3C, GUNREAL, and UNREAL's input as settings, each with the paper's numbers."""
    return {
        "base": Setting("base (GA3C)", {"tasks": (), **STACK}, base),
        ALL: Setting("pc+vr+rp (GUNREAL)", {"tasks": TASKS, **STACK}, gunreal),
        "rgb": Setting("pc+vr+rp, single RGB frame (UNREAL's input)", {"tasks": TASKS, **RGB}, unreal),
    }


_ALL = (
    Learning(
        name="fig7",
        title="GUNREAL figure 7: stacked gray frames against a single RGB frame",
        shows="The paper (section 3.1): on nav_maze_static_01 stacked gray frames learn faster; single RGB frames did "
        "not give the desired learning abilities. It states no numbers.",
        envs=NAV_MAZE,
        settings={
            "rgb": Setting("single RGB frame", {"tasks": TASKS, **RGB}),
            "stack": Setting("4 stacked gray frames", {"tasks": TASKS, **STACK}),
        },
        common=MAZE,
        steps=1_500_000,
        reference="rgb",
    ),
    Learning(
        name="fig13",
        title="GUNREAL figure 13: nav_maze_static_01",
        shows="The paper (sections 4.3, 4.4): GUNREAL reaches 15, five times UNREAL's score, and finishes 1.6 times "
        "sooner; GA3C and UNREAL collect apples only. Its UNREAL is another program, without LSTM and on single RGB "
        "frames; here the tasks on that input stand for it, so that compute times are not comparable with the paper's.",
        envs=NAV_MAZE,
        settings=three_systems({}, {"score": 15}, {"score": 3}),
        common=MAZE,
        steps=1_500_000,
    ),
    Learning(
        name="fig14",
        title="GUNREAL figure 14: seekavoid_arena_01",
        shows="The paper (section 4.3): UNREAL 31, GUNREAL 27, GA3C 25; GUNREAL needs 73 % fewer steps than GA3C to "
        "reach 25 and finishes 1.5 times sooner than UNREAL. Its UNREAL is another program, without LSTM and on single "
        "RGB frames; here the tasks on that input stand for it, so that compute times are not comparable.",
        envs=ARENA,
        settings=three_systems({"score": 25}, {"score": 27, "ratio": 0.27}, {"score": 31}),
        steps=1_500_000,
    ),
    Learning(
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
        common=MAZE,
        steps=1_500_000,
    ),
    Learning(
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
        common=MAZE,
        steps=1_500_000,
        reference="small",
    ),
    Learning(
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
    Learning(
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
    Learning(
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
