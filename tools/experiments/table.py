"""Classes that describe experiments, and constants that several experiments share.

A setting is a set of fields of `gunreal.Config`. All other fields are equal for all settings of an experiment, and can
be set on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gunreal.config.files import load

TASKS = ("pc", "vr", "rp")
PONG = ("ALE/Pong-v5",)
GA3C = load(Path(__file__).parents[2] / "configs" / "sweeps" / "constants" / "ga3c.toml")
FOREVER = 10**9  # agent steps: the budget of a run that is limited by time only


class Setting(NamedTuple):
    """A setting of an experiment.

    Attributes:
      label: its name in the figure's legend and in the table.
      fields: values of fields of `gunreal.Config`.
      paper: results in the paper.
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
      envs: the environments, of which a speed experiment has one.
      settings: settings by their names, in the order of measuring and drawing.
      common: fields of all settings, which the command line can override.
    """

    name: str
    title: str
    shows: str
    envs: tuple[str, ...]
    settings: Mapping[str, Setting]
    common: Mapping[str, Any] = field(default_factory=dict)
