"""Measures the settings of an experiment in rounds and saves each measurement at once.

Rounds alternate between the settings, so that other load on the machine affects all of them equally.
`EXPERIMENT.rounds.json` in the folder of runs contains all measurements with their configurations and the machine.
Measurements that exist already are not repeated.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.command_line import check_processes
from measuring import measure
from measuring.machine import machine

from experiments import saved, settings
from experiments.speed import SpeedExperiment
from experiments.table import FOREVER
from gunreal.config.schema import Config, ConfigError
from gunreal.train import prepare

_MACHINE = ("processor", "cores", "gpus")
_IGNORED = {"logdir", "name", "steps"}  # fields that do not affect a measurement


def plan(
    experiment: SpeedExperiment, extra: Sequence[str] = (), env: str = "", logdir: str = ""
) -> tuple[dict[str, Config], Path]:
    """Returns the configurations by setting, and the file for the measurements. See `settings.configs`.

    Raises:
      ConfigError: a flag or setting is invalid.
    """
    wanted = settings.configs(experiment, extra, env, logdir)
    for config in wanted.values():
        if config.scheduler != "off":
            raise ConfigError("--scheduler can't be measured here; leave it out, or set --scheduler off")
        check_processes(config)
    configs = {name: dataclasses.replace(config, steps=FOREVER, name="") for name, config in wanted.items()}
    return configs, Path(next(iter(configs.values())).logdir) / f"{experiment.name}.rounds.json"


class Rounds:
    """The measurements of an experiment, in memory and in a file.

    Args:
      path: the file.
      configs: the configuration of each setting.
      seconds: length of the warm-up, which is half the length of a measurement.

    Raises:
      ConfigError: the file has measurements of other configurations or another machine, or it can't be read.

    Attributes:
      rows: measurements of each setting, oldest first.
    """

    def __init__(self, path: Path, configs: Mapping[str, Config], seconds: float):
        self.path = path
        self._configs = {name: _as_json(config) for name, config in configs.items()}
        here = machine()
        self._head = {"seconds": seconds, **{name: here[name] for name in _MACHINE}}
        there = read(path) if path.exists() else {"settings": {}}
        self._settings: dict[str, Any] = there["settings"]
        self._check(there)
        self.rows: dict[str, list[dict[str, Any]]] = {
            name: self._settings.get(name, {}).get("rows", []) for name in configs
        }

    def _check(self, found: dict[str, Any]) -> None:
        pairs = {name: (found.get(name), value) for name, value in self._head.items()} if self._settings else {}
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
        """Adds a measurement and saves the file. Raises OSError."""
        self.rows[name].append(row)
        self._settings[name] = {"config": self._configs[name], "rows": self.rows[name]}
        saved.save(self.path, self._head | {"settings": self._settings})


def read(path: Path) -> dict[str, Any]:
    """Returns "seconds", "processor", "cores", "gpus", and "settings" with "config" and "rows" for each setting.

    Raises:
      ConfigError: the file does not exist or is damaged.
    """
    try:
        found = saved.load(path, dict)
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist, so there are no measurements yet; run without --draw") from None
    if not isinstance(found.get("settings"), dict):
        raise ConfigError(f"{path} is damaged: it has no settings; remove it")
    return found


def _as_json(config: Config) -> dict[str, Any]:
    fields = {name: value for name, value in dataclasses.asdict(config).items() if name not in _IGNORED}
    return json.loads(json.dumps(fields))


def check(configs: Mapping[str, Config]) -> None:
    """Raises ConfigError if a setting can't be measured."""
    for config in configs.values():
        prepare(config)


def run(rounds: Rounds, configs: Mapping[str, Config], seconds: float, count: int, say: Callable[[str], None]) -> int:
    """Makes the missing measurements of `count` rounds and returns the number of settings that failed.

    A setting that fails is not tried again. The other settings are still measured.

    Raises:
      OSError: a measurement can't be saved.
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
                note += f"; only {row['agents']:.0f} of {config.agents} agents fit into memory"
            say(f"{place}: {row['pps']:,.0f} agent steps/s acted, {row['tps']:,.0f} trained{note}")
    return len(failed)
