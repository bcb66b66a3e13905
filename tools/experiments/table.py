"""What an experiment is: its settings, which are fields of `gunreal.Config`, and the constants that several share.

What none of the settings sets is the same for all and is chosen on the command line.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

TASKS = ("pc", "vr", "rp")
ALL = "pc+vr+rp"
STACK = {"observation": "gray", "frame_stack": 4}
RGB = {"observation": "rgb", "frame_stack": 1}
NAV_MAZE = ("dmlab/nav_maze_static_01", "gunreal/NavMazeStatic-v0")
LEARNING = (("step", "score_mean"), ("seconds", "score_mean"))
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
class LearningExperiment(Experiment):
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

    def parts(self) -> list[LearningExperiment]:
        """What it is made of: experiments on one environment each."""
        return [self]


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


@dataclass(frozen=True, kw_only=True)
class GamesExperiment(LearningExperiment):
    """A learning experiment on several Atari games: the same settings, a panel and rows of the table for each game.

    Attributes:
      games: by name, the paper's scores by setting, which stand in the table.
    """

    games: Mapping[str, Mapping[str, float]]

    def parts(self) -> list[LearningExperiment]:
        """An experiment on each game; its runs are called `EXPERIMENT-GAME-SETTING-sSEED`."""
        return [self._on(game) for game in self.games]

    def _on(self, game: str) -> LearningExperiment:
        papers = self.games[game]
        settings = {
            name: setting._replace(paper={"score": papers[name]} if name in papers else {})
            for name, setting in self.settings.items()
        }
        values = {field.name: getattr(self, field.name) for field in fields(LearningExperiment)}
        values |= {"name": f"{self.name}-{game}", "title": game, "envs": (f"ALE/{game}-v5",), "settings": settings}
        return LearningExperiment(**values)
