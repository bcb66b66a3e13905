"""The papers' experiments that `tools/reproduce.py` runs: a table, in which a new one is a new entry.

Settings are fields of `gunreal.Config`; what none of them sets is the same for all and is chosen on the command line.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

TASKS = ("pc", "vr", "rp")
ALL = "pc+vr+rp"
STACK = {"observation": "gray", "frame_stack": 4}
RGB = {"observation": "rgb", "frame_stack": 1}
NAV_MAZE = ("dmlab/nav_maze_static_01", "gunreal/NavMazeStatic-v0")
LEARNING = (("step", "score_mean"), ("seconds", "score_mean"))
ARENA = ("dmlab/seekavoid_arena_01", "gunreal/SeekAvoid-v0")


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


@dataclass(frozen=True)
class Experiment:
    """What is trained and how it is shown.

    Attributes:
      name: on the command line and in the runs' names.
      title: of the picture.
      shows: what the paper shows, and what to keep in mind when comparing; a note below the picture and the table.
      envs: the paper's environment, then its equivalent for machines without it.
      settings: by the name that is part of their runs' names; trained and drawn in this order.
      steps: budget of a run in agent steps, unless --steps says another.
      reference: the setting that the others are measured against.
      panels: pairs of keys of `metrics.jsonl`, (x axis, y axis); the picture has a panel for each.
    """

    name: str
    title: str
    shows: str
    envs: tuple[str, ...]
    settings: Mapping[str, Setting]
    steps: int
    reference: str = "base"
    panels: tuple[tuple[str, str], ...] = LEARNING

    def env(self) -> str:
        """The first of `envs` that this machine has."""
        lab = importlib.util.find_spec("deepmind_lab") is not None
        return next((env for env in self.envs if lab or not env.startswith("dmlab/")), self.envs[-1])


_ALL = (
    Experiment(
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
    Experiment(
        name="fig13",
        title="GUNREAL figure 13: nav_maze_static_01",
        shows="The paper (sections 4.3, 4.4): GUNREAL reaches 15, five times UNREAL's score, and finishes 1.6 times "
        "sooner; GA3C and UNREAL collect apples only. Its UNREAL is another program, without LSTM and on single RGB "
        "frames; here the tasks on that input stand for it, so that compute times are not comparable with the paper's.",
        envs=NAV_MAZE,
        settings={
            "base": Setting("base (GA3C)", {"tasks": (), **STACK}),
            ALL: Setting("pc+vr+rp (GUNREAL)", {"tasks": TASKS, **STACK}, {"score": 15}),
            "rgb": Setting("pc+vr+rp, single RGB frame (UNREAL's input)", {"tasks": TASKS, **RGB}, {"score": 3}),
        },
        steps=1_500_000,
    ),
    Experiment(
        name="fig14",
        title="GUNREAL figure 14: seekavoid_arena_01",
        shows="The paper (section 4.3): UNREAL 31, GUNREAL 27, GA3C 25; GUNREAL needs 73 % fewer steps than GA3C to "
        "reach 25 and finishes 1.5 times sooner than UNREAL. Its UNREAL is another program, without LSTM and on single "
        "RGB frames; here the tasks on that input stand for it, so that compute times are not comparable.",
        envs=ARENA,
        settings={
            "base": Setting("base (GA3C)", {"tasks": (), **STACK}, {"score": 25}),
            ALL: Setting("pc+vr+rp (GUNREAL)", {"tasks": TASKS, **STACK}, {"score": 27, "ratio": 0.27}),
            "rgb": Setting("pc+vr+rp, single RGB frame (UNREAL's input)", {"tasks": TASKS, **RGB}, {"score": 31}),
        },
        steps=1_500_000,
    ),
    Experiment(
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
    Experiment(
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
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}
