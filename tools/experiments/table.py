"""Classes that describe experiments, and constants that several experiments share.

A setting is a set of fields of `gunreal.Config`. All other fields are equal for all settings of an experiment, and can
be set on the command line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from gunreal.config.checks import is_installed

TASKS = ("pc", "vr", "rp")
ALL = "pc+vr+rp"
STACK = {"observation": "gray", "frame_stack": 4}
RGB = {"observation": "rgb", "frame_stack": 1}
NAV_MAZE = ("dmlab/nav_maze_static_01", "gunreal/NavMazeStatic-v0")
LEARNING = (("step", "score_mean"), ("seconds", "score_mean"))
ARENA = ("dmlab/seekavoid_arena_01", "gunreal/SeekAvoid-v0")
PONG = ("ALE/Pong-v5",)
GA3C: Mapping[str, Any] = {  # the constants of configs/ga3c_pong.toml that do not depend on the machine
    "t_max": 5,
    "min_batch": 40,
    "optimizer": "rmsprop",
    "learning_rate": 3e-4,
    "learning_rate_end": 3e-4,
    "rms_initial": 1.0,
    "epsilon": 0.1,
    "max_grad_norm": 0.0,
    "reduction": "sum",
    "algorithm": "a3c",
    "value_weight": 1.0,
    "correction": "epsilon",
    "normalize_observations": "off",
    "normalize_returns": False,
}
FOREVER = 10**9  # agent steps: the budget of a run that is limited by time only


class Setting(NamedTuple):
    """A setting of an experiment.

    Attributes:
      label: its name in the figure's legend and in the table.
      fields: values of fields of `gunreal.Config`.
      paper: results in the paper. "score" is the final score. "ratio" is the number of steps to the reference's score,
        divided by the reference's steps.
    """

    label: str
    fields: Mapping[str, Any]
    paper: Mapping[str, float] = {}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment.

    Attributes:
      name: its name on the command line and in file names.
      title: title of the figure.
      shows: note below the figure and the table: what the paper shows, and what limits the comparison.
      envs: the paper's environment, followed by an equivalent for machines that do not have it.
      settings: settings by their names, which are part of the runs' names, in the order of training and drawing.
      common: fields of all settings, which the command line can override.
    """

    name: str
    title: str
    shows: str
    envs: tuple[str, ...]
    settings: Mapping[str, Setting]
    common: Mapping[str, Any] = field(default_factory=dict)

    def env(self) -> str:
        """Returns the first of `envs` that is available on this machine."""
        lab = is_installed("deepmind_lab")
        return next((env for env in self.envs if lab or not env.startswith("dmlab/")), self.envs[-1])


@dataclass(frozen=True, kw_only=True)
class LearningExperiment(Experiment):
    """An experiment that trains runs and compares their learning curves.

    Attributes:
      steps: length of a run in agent steps, which --steps overrides.
      minutes: longest training time of a run, which --minutes overrides.
      reference: setting with which the others are compared.
      target: subject of the table: "score", or "tps" for how soon a scheduler reaches the best training rate.
      goal: mean score of the last 100 episodes at which a run ends. If it is infinite, runs take all steps, and the
        table shows the steps to the final score of the reference.
      panels: panels of the figure, as pairs of keys of `metrics.jsonl` for the x and the y axis.
    """

    steps: int
    minutes: float = math.inf
    reference: str = "base"
    target: str = "score"
    goal: float = math.inf
    panels: tuple[tuple[str, str], ...] = LEARNING

    def parts(self) -> list[LearningExperiment]:
        """Returns its parts: experiments on one environment each."""
        return [self]


def counts(agents: int, predictors: int = 1, trainers: int = 1, each: int = 1) -> dict[str, int]:
    """Returns fields for N_A, N_P and N_T with `each` agents per process. GA3C has one agent per process."""
    return {"agents": agents, "agents_per_process": each, "predictors": predictors, "trainers": trainers}


def three_systems(
    base: Mapping[str, float], gunreal: Mapping[str, float], unreal: Mapping[str, float]
) -> dict[str, Setting]:
    """Returns settings for GA3C, GUNREAL and UNREAL's input, each with the results of the paper."""
    return {
        "base": Setting("base (GA3C)", {"tasks": (), **STACK}, base),
        ALL: Setting("pc+vr+rp (GUNREAL)", {"tasks": TASKS, **STACK}, gunreal),
        "rgb": Setting("pc+vr+rp, single RGB frame (UNREAL's input)", {"tasks": TASKS, **RGB}, unreal),
    }


@dataclass(frozen=True, kw_only=True)
class GamesExperiment(LearningExperiment):
    """A learning experiment on several Atari games, with a panel and a table for each game.

    Attributes:
      games: names of the games, each with the paper's scores by setting.
      goals: `goal` of the games that have one.
    """

    games: Mapping[str, Mapping[str, float]]
    goals: Mapping[str, float] = field(default_factory=dict)

    def parts(self) -> list[LearningExperiment]:
        """Returns one experiment per game. Its runs are called `EXPERIMENT-GAME-SETTING-sSEED`."""
        return [self._on(game) for game in self.games]

    def _on(self, game: str) -> LearningExperiment:
        papers = self.games[game]
        settings = {
            name: setting._replace(paper={"score": papers[name]} if name in papers else {})
            for name, setting in self.settings.items()
        }
        values = {field.name: getattr(self, field.name) for field in fields(LearningExperiment)}
        values |= {"name": f"{self.name}-{game}", "title": game, "envs": (f"ALE/{game}-v5",), "settings": settings}
        values |= {"goal": self.goals.get(game, self.goal)}
        return LearningExperiment(**values)
