"""The model card of a run: what it is, its scores and curve, how to use it, and the command that trains such a run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from gunreal.config import folders, plugins
from gunreal.config.resolve import Facts, resolved
from gunreal.config.schema import FIELDS, Config, typed
from gunreal.learning.registry import NETWORK
from gunreal.records import checkpoint, interface
from gunreal.tasks.registry import TASK

CURVE, SCORES = "curve.png", "scores.json"
# The folders, machines and accounts of a run are nobody else's.
PRIVATE = ("logdir", "name", "init", "address", "track")


class Card(NamedTuple):
    """The facts about an evaluated run.

    Attributes:
      step: agent steps of its weights.
      scores: statistics of its episodes, as `gunreal.acting.episodes.summarize` returns them.
      command: the command line that trains such a run.
    """

    config: Config
    step: int
    scores: dict[str, Any]
    command: str


def read(folder: Path) -> Card:
    """The facts from the files of a folder that `gunreal.hub.store` and `gunreal.hub.score` have written.

    Raises:
      ConfigError: the configuration cannot be read, or names a plug-in that is not installed.
      OSError: a file is missing.
    """
    config, known = folders.saved_config(folder), interface.load(folder)
    facts = Facts(is_image=known[0].is_image if known else None)
    scores = json.loads((folder / SCORES).read_text())
    return Card(config, checkpoint.newest_step(folder), scores, command(config, facts))


def command(config: Config, facts: Facts) -> str:
    """The command line that trains such a run, with the settings that differ from their defaults."""
    given: dict[str, Any] = {}
    for name in FIELDS:  # what a default depends on comes first
        if name in PRIVATE:
            continue
        value, default = getattr(config, name), _default(name, Config(**given), facts)
        if name == "task":
            value = {task: _others(options, default[task]) for task, options in value.items()}
        elif isinstance(value, dict):
            value, default = _others(value, default), {}
        if value != default and (name != "task" or any(value.values())):
            given[name] = value
    return shlex.join(["gunreal", "train", *(word for name in given for word in _flag(name, given[name]))])


def _default(name: str, given: Config, facts: Facts) -> Any:
    """The value that a setting has with the settings before it. That of "task" has the options of all tasks."""
    if name == "task":
        named = ((own, plugins.load_class(TASK, cls)) for own, _, cls in (x.rpartition("=") for x in given.tasks))
        return typed(name, {own or cls.name: plugins.defaults(cls) for own, cls in named})
    if name == "network_args":
        return typed(name, plugins.defaults(plugins.load_class(NETWORK, resolved(given, facts).network)))
    if name == "backend" and given.runner == "device":
        return "jax"
    return getattr(resolved(given, facts), name)


def _others(options: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in defaults or defaults[name] != value}


def _flag(name: str, value: Any) -> list[str]:
    """The words that set a field."""
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no{name}"]
    if name == "task":
        value = {f"{task}.{option}": x for task, options in value.items() for option, x in options.items()}
    if isinstance(value, dict):
        value = ",".join(f"{key}={_toml(x)}" for key, x in value.items())
    return [f"--{name}", ",".join(value) if isinstance(value, tuple) else str(value)]


def _toml(value: Any) -> str:
    return value if isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./:-]*", value) else json.dumps(value)


def text(folder: Path, source: str) -> str:
    """The model card, with the metadata of the Hugging Face Hub.

    Args:
      folder: the folder, as for `read`.
      source: where the run is found: "zoo:NAME", or the name of a repository on the Hub.

    Raises:
      ConfigError, OSError: as `read`.
    """
    from huggingface_hub import EvalResult, ModelCardData

    config, step, scores, trains = read(folder)
    name = re.split("[:/]", source)[-1]
    shown = f"{scores['mean']:.2f} +/- {scores['std']:.2f}"
    result = EvalResult("reinforcement-learning", config.env, config.env, "mean_reward", shown)
    tags = ["reinforcement-learning", "gunreal", *(task.split(":")[-1] for task in config.tasks)]
    data = ModelCardData(library_name="gunreal", tags=tags, model_name=name, eval_results=[result])
    tasks = f", with the auxiliary tasks {', '.join(config.tasks)}" if config.tasks else ""
    columns = ("mean", "median", "std", "min", "max", "episodes", "mean_length")
    cells = " | ".join(f"{scores[key]:.2f}" if isinstance(scores[key], float) else str(scores[key]) for key in columns)
    is_here = source.startswith(folders.ZOO)
    pull = [] if is_here else [f"gunreal pull {source}"]
    if not is_here:  # another version may have other defaults
        trains = f"gunreal train --config {Config.logdir}/{name}/{folders.CONFIG} --name again"
    return "\n".join(
        [
            *("---", data.to_yaml().strip(), "---", "", f"# {name}", ""),
            f"A policy for {config.env}, trained by gunreal for {step:,} agent steps{tasks}.",
            *("", "## Scores", "", "Sums of raw rewards in new episodes:", ""),
            *(
                f"| {' | '.join(key.replace('_', ' ') for key in columns)} |",
                f"|{'---|' * len(columns)}",
                f"| {cells} |",
            ),
            *(["", f"![Score over agent steps]({CURVE})"] if (folder / CURVE).exists() else []),
            *("", "## Use", "", "```python", "import gunreal", ""),
            f'run = gunreal.{"load" if is_here else "load_from_hub"}("{source}")',
            *("policy = run.policy()", "print(run.evaluate(episodes=10).mean())", "```", ""),
            *(
                "```bash",
                *pull,
                f"gunreal evaluate {source if is_here else name} --episodes {scores['episodes']}",
                "```",
            ),
            *("", "## Train", "", "```bash", trains, "```", ""),
        ]
    )
