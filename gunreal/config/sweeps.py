"""A sweep: settings, each trained with several seeds in one or several environments, as a TOML file.

```toml
seeds = 5                  # 1 to 5, or a list
envs = ["ALE/Pong-v5", "ALE/Breakout-v5"]
steps = 2_000_000          # as every setting of `gunreal train`, of all runs

[settings.base]

[settings.tasks]
tasks = ["pc", "vr", "rp"]
task.pc.weight = 0.02
```
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gunreal.config import folders
from gunreal.config.checks import only_in_others, without_effect
from gunreal.config.files import fields, parsed
from gunreal.config.flags import merge
from gunreal.config.schema import FIELDS, Config, ConfigError, close_match, typed
from gunreal.config.values import is_number

_OF_SWEEP = {"seed": "seeds", "name": "name at the top of the file", "logdir": "logdir at the top of the file"}


class Planned(NamedTuple):
    """A run of a sweep: its setting, and the fields of its configuration, the other ones having their defaults."""

    setting: str
    given: dict[str, Any]

    @property
    def config(self) -> Config:
        """The configuration, with the name of the run and the folder of the sweep as its `logdir`."""
        return Config(**self.given)


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What a sweep trains.

    Attributes:
      folder: folder of its runs.
      runs: its runs, in the order in which they start: by seed, environment and setting.
      parallel: number of runs at a time.
      score: mean score of the last 100 episodes at which a run ends.
      minutes: training time after which a run ends.
      episodes: number of episodes of the evaluation after each run, 0 for none.
    """

    folder: Path
    runs: Sequence[Planned]
    parallel: int = 1
    score: float = math.inf
    minutes: float = math.inf
    episodes: int = 0


_KEYS = ("seeds", "envs", "settings", "parallel", "score", "minutes", "episodes")  # in addition to fields


def load(path: str | Path, flags: Mapping[str, Any], options: Mapping[str, Any]) -> Sweep:
    """Reads a sweep file.

    A setting overrides what is at the top of the file, and flags override both. Options of a task only apply to the
    settings with this task, and other fields only to those on which they have an effect, unless a setting has them
    itself.

    Args:
      path: the file. Without `name` in it, the sweep has its name.
      flags: fields of all runs, as from a command line.
      options: values that replace the sweep's own keys, such as "seeds". "only" lists the settings to train.

    Raises:
      ConfigError: the file is not a sweep. The message is one line that names the fix.
    """
    path, found, where = Path(path), parsed(path), str(path)
    own = {key: found.pop(key) for key in _KEYS if key in found}
    own |= {key: value for key, value in options.items() if key in _KEYS and value is not None}
    tables = own.pop("settings", {}) or {"base": {}}
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigError(f"{where}: settings is no table of tables; write [settings.base] above the settings of each")
    for key, value in found.items():
        if isinstance(value, dict) and key not in FIELDS and not close_match(key, [*FIELDS, *_KEYS]):
            raise ConfigError(f"{where}: unknown table {key}; write [settings.{key}] if it is a setting")
    common = merge(_fields(found, where, path.parent, _KEYS), dict(flags))
    own["name"], own["logdir"] = common.pop("name", "") or path.stem, common.pop("logdir", Config.logdir)
    if "seed" in common:
        raise ConfigError(f"{where}: seed is set by the sweep; write seeds = {common['seed']} or a list of seeds")
    if "env" in flags:
        own.pop("envs", None)
    elif options.get("envs"):
        common.pop("env", None)
    elif "env" in found and "envs" in own:
        raise ConfigError(f"{where} has env and envs; leave one of them out")
    settings = {name: _setting(name, table, path, "envs" in own) for name, table in tables.items()}
    merged = {name: merge(merge(common, dict(setting)), dict(flags)) for name, setting in settings.items()}
    merged = {name: _of_its_tasks(given, settings[name], merged.values()) for name, given in merged.items()}
    merged = _with_effect(merged, settings)
    return _planned(_only(merged, options.get("only"), where), own, where)


def _fields(found: Mapping[str, Any], where: str, folder: Path, others: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a table, over those of the file that it names as `config`."""
    given = fields({key: value for key, value in found.items() if key != "config"}, where, (*others, "config"))
    if "config" not in found:
        return given
    if not isinstance(found["config"], str):
        raise ConfigError(f"{where}: config is {found['config']!r}, but must be the path of a TOML file")
    path = folder / found["config"]
    return merge(fields(parsed(path), str(path)), given)


def _setting(name: str, table: dict[str, Any], path: Path, several: bool) -> dict[str, Any]:
    place = f"{path}: settings.{name}"
    if not re.fullmatch(r"[\w.+-]+", name):
        raise ConfigError(f"{place} is part of the names of runs; use letters, digits and . + - _")
    given = _fields(table, place, path.parent)
    for key, instead in _OF_SWEEP.items():
        if key in table:
            raise ConfigError(f"{place}: {key} is set by the sweep; write {instead}")
        given.pop(key, None)  # of the file that `config` names
    if several:
        if "env" in table:
            raise ConfigError(f"{place}: env is set by envs; leave one of them out")
        given.pop("env", None)
    return given


def _of_its_tasks(
    given: dict[str, Any], setting: Mapping[str, Any], every: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """The fields without what is meant for the tasks of other settings."""
    tasks, known = given.get("tasks", ()), {task for of in every for task in of.get("tasks", ())}
    if "task" not in given:
        return given
    kept = {*tasks, *setting.get("task", {})} | given["task"].keys() - known
    return given | {"task": {task: options for task, options in given["task"].items() if task in kept}}


def _with_effect(
    merged: Mapping[str, dict[str, Any]], settings: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The fields of each setting without what only has an effect in others, unless it has them itself."""
    lost = only_in_others({name: _without_effect(given) for name, given in merged.items()})
    return {
        name: {key: value for key, value in given.items() if key not in lost[name] or key in settings[name]}
        for name, given in merged.items()
    }


def _without_effect(given: Mapping[str, Any]) -> set[str]:
    """The fields without effect, if the objective can be loaded here. A later check says why not."""
    if ":" in given.get("objective", ""):  # a module that this process need not import
        return set()
    try:
        return without_effect(Config(**given))
    except ConfigError:
        return set()


def _only(settings: dict[str, Any], chosen: Sequence[str] | None, where: str) -> dict[str, Any]:
    for name in chosen or ():
        if name not in settings:
            raise ConfigError(
                f"{where} has no setting {name}{close_match(name, settings)}; it has {', '.join(settings)}"
            )
    return {name: settings[name] for name in chosen or settings}


def _planned(settings: Mapping[str, dict[str, Any]], own: Mapping[str, Any], where: str) -> Sweep:
    folder = folders.expanded(own["logdir"]) / own["name"]
    envs = own.get("envs", [None])
    if not isinstance(envs, list) or not envs or not all(env is None or (env and isinstance(env, str)) for env in envs):
        raise ConfigError(f"{where}: envs is {envs!r}, but must be a list of environments")
    runs = []
    for seed in _seeds(own.get("seeds", 1), where):
        for env in envs:
            for setting, given in settings.items():
                name = f"{short(env)}-{setting}-s{seed}" if env else f"{setting}-s{seed}"
                runs.append(Planned(setting, given | {"env": env} if env else dict(given)))
                runs[-1].given.update(seed=seed, name=name, logdir=str(folder))
                runs[-1].given.setdefault("steps", Config.steps)  # a resumed run would keep an earlier budget
    names = [run.given["name"] for run in runs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ConfigError(f"{where} has two runs called {twice}; list each seed and environment once")
    limits: dict[str, Any] = {key: _positive(key, own[key], where) for key in ("score", "minutes") if key in own}
    counts = {key: _count(key, own[key], where) for key in ("parallel", "episodes") if key in own}
    return Sweep(folder, runs, **limits, **counts)


def _seeds(value: Any, where: str) -> list[int]:
    if is_number(value) and value >= 1:
        return list(range(1, _count("seeds", value, where) + 1))
    if isinstance(value, list) and value:
        return [typed("seed", seed) for seed in value]
    raise ConfigError(f"{where}: seeds is {value!r}, but must be their number or a list of them")


def _count(key: str, value: Any, where: str) -> int:
    if is_number(value) and value >= 1 and float(value).is_integer():
        return int(value)
    raise ConfigError(f"{where}: {key} is {value!r}, but must be a whole number, 1 or more")


def _positive(key: str, value: Any, where: str) -> float:
    if is_number(value) and math.isfinite(value) and (value > 0 or key == "score"):
        return float(value)
    raise ConfigError(f"{where}: {key} is {value!r}, but must be a {'' if key == 'score' else 'positive '}number")


def short(env: str) -> str:
    """A name for an environment, such as Pong for "ALE/Pong-v5" and Maze for "mine:Maze"."""
    return re.sub(r"-v\d+$", "", re.split("[/:]", env)[-1])
