"""The tasks that pay in an environment, as far as it was measured (`--tasks auto`)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from gunreal.config.fields import AUTO
from gunreal.config.schema import Config
from gunreal.config.warning import warn


class Advice(NamedTuple):
    """What is known about a family of environments.

    Attributes:
      tasks: the tasks that pay. None do if it is empty.
      evidence: what was measured.
      page: the page with the numbers, without its folder. Empty if nothing was measured.
    """

    tasks: tuple[str, ...]
    evidence: str
    page: str = ""


# By the beginning of the environment's id.
KNOWN = {
    "gunreal/NavMazeStatic-": Advice(("pc", "vr", "rp"), "they save steps", "mazes.md"),
    "gunreal/RareGoalMaze-": Advice((), "with PPO, tasks save no steps", "mazes.md"),
    "gunreal/Catch-": Advice((), "with a delay and an LSTM, tasks save no steps", "tasks.md"),
    "gunreal/SeekAvoid-": Advice((), "tasks save no steps, by one seed", "mazes.md"),
    "ALE/": Advice((), "no set of tasks has shown a gain", "atari.md"),
}
_UNKNOWN = Advice((), "nothing was measured there")


def advice(env: str) -> Advice:
    """What is known about the environment with this id."""
    return next((known for start, known in KNOWN.items() if env.startswith(start)), _UNKNOWN)


def line(env: str) -> str:
    """The recommendation for the environment with this id, with its evidence."""
    tasks, evidence, page = advice(env)
    shown = f" (docs/results/{page})" if page else ""
    return f"recommended tasks for {env}: {','.join(tasks) or 'none'}, because {evidence}{shown}"


def chosen(config: Config) -> Config:
    """The configuration with the recommended tasks in place of `AUTO`, which a line on standard error names."""
    if config.tasks != (AUTO,):
        return config
    warn(line(config.env))
    return dataclasses.replace(config, tasks=advice(config.env).tasks)
