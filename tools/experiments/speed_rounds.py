"""Measures the settings of an experiment in rounds, and keeps every row as soon as it is there.

Rounds alternate between the settings, so that a noisy machine disturbs them alike. `EXPERIMENT.rounds.json` in the
folder of runs has all rows with what they were measured of and on; who asks again gets only what is missing measured.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from measuring import measure
from measuring.machine import machine

from experiments import trainings
from experiments.speed import SpeedExperiment
from experiments.table import FOREVER
from gunreal.config.schema import Config, ConfigError
from gunreal.train import prepare

_MACHINE = ("processor", "cores")
_IGNORED = {"logdir", "name", "steps"}  # no matter to a row


def plan(
    experiment: SpeedExperiment, extra: Sequence[str] = (), env: str = "", logdir: str = ""
) -> tuple[dict[str, Config], Path]:
    """What is to be measured, by setting, and the file for its rows. See `trainings.configs`.

    Raises:
      ConfigError: one line that names the fix.
    """
    wanted = trainings.configs(experiment, extra, env, logdir, {})
    for config in wanted.values():
        if config.serial or config.scheduler != "off":
            raise ConfigError("what is measured has agent processes and fixed counts; leave --serial, --scheduler out")
    configs = {name: dataclasses.replace(config, steps=FOREVER, name="") for name, config in wanted.items()}
    return configs, Path(next(iter(configs.values())).logdir) / f"{experiment.name}.rounds.json"


class Rounds:
    """The rows of an experiment, in memory and in their file.

    Args:
      seconds: of a measurement's warm-up, and half of what counts.

    Raises:
      ConfigError: the file has rows of something else, or can't be read.

    Attributes:
      rows: of each setting, oldest first.
    """

    def __init__(self, path: Path, configs: Mapping[str, Config], seconds: float):
        self.path = path
        self._configs = {name: _as_json(config) for name, config in configs.items()}
        self._head = {"seconds": seconds, **{name: machine()[name] for name in _MACHINE}}
        saved = read(path) if path.exists() else {"settings": {}}
        self._settings: dict[str, Any] = saved["settings"]
        self._check(saved)
        self.rows: dict[str, list[dict[str, Any]]] = {
            name: self._settings.get(name, {}).get("rows", []) for name in configs
        }

    def _check(self, saved: dict[str, Any]) -> None:
        pairs = {name: (saved.get(name), value) for name, value in self._head.items()} if self._settings else {}
        for name, config in self._configs.items():
            there = self._settings.get(name, {}).get("config", config)
            pairs |= {field: (there.get(field), value) for field, value in config.items()}
            different = {name: (old, new) for name, (old, new) in pairs.items() if old != new}
            if different:
                field, (old, new) = next(iter(different.items()))
                raise ConfigError(
                    f"{self.path} was measured with {field} {old!r}, not {new!r}; choose another folder with --logdir"
                )

    def add(self, name: str, row: dict[str, Any]) -> None:
        """Keeps a row. Raises OSError."""
        self.rows[name].append(row)
        self._settings[name] = {"config": self._configs[name], "rows": self.rows[name]}
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self._head | {"settings": self._settings}) + "\n")
        os.replace(temporary, self.path)


def read(path: Path) -> dict[str, Any]:
    """What was measured: "seconds", "processor", "cores", and "settings", each with "config" and "rows".

    Raises:
      ConfigError: nothing was, or the file is damaged.
    """
    try:
        found = json.loads(path.read_text())
        if isinstance(found, dict) and isinstance(found["settings"], dict):
            return found
        reason = "it has no settings"
    except FileNotFoundError:
        raise ConfigError(f"nothing has been measured yet: there is no {path}") from None
    except (ValueError, KeyError) as error:
        reason = str(error)
    raise ConfigError(f"{path} is damaged: {reason}; move it away")


def _as_json(config: Config) -> dict[str, Any]:
    fields = {name: value for name, value in dataclasses.asdict(config).items() if name not in _IGNORED}
    return json.loads(json.dumps(fields))


def check(configs: Mapping[str, Config]) -> None:
    """Raises ConfigError where a setting can't be measured."""
    for config in configs.values():
        prepare(config)


def run(rounds: Rounds, configs: Mapping[str, Config], seconds: float, count: int, say: Callable[[str], None]) -> int:
    """Measures what is missing of `count` rounds; returns how many measurements failed.

    A setting that can't be measured keeps no other from it, and is tried once.

    Raises:
      OSError: a row can't be kept.
    """
    failed: set[str] = set()
    for number in range(count):
        for name, config in configs.items():
            if len(rounds.rows[name]) > number or name in failed:
                continue
            place = f"round {number + 1} of {count}, {name}"
            try:
                row = measure.row(config, seconds, parts=False)
            except measure.MeasurementFailed as error:
                failed.add(name)
                say(f"{place}: {error}")
                continue
            rounds.add(name, row)
            note = "" if row["balanced"] else ", not balanced"
            if row["agents"] < config.agents:
                note += f"; memory was enough for {row['agents']:.0f} of {config.agents} agents"
            say(f"{place}: {row['pps']:,.0f} agent steps/s, {row['tps']:,.0f} trained{note}")
    return len(failed)
