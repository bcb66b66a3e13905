"""The model card of a run: what it is, its scores and curve, how to use it, and the command that trains such a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import tomli_w

from gunreal.config.flags import from_flags
from gunreal.config.schema import FIELDS, Config, ConfigError

_NOT_SHOWN = ("logdir", "name", "track")  # they concern the machine on which the run was trained


def command(config: Config) -> str:
    """The command line that trains a run with this configuration.

    Tables within tables have no form on a command line. The command then reads the run's `config.toml`.
    """
    words = ["gunreal", "train"]
    for name, field in FIELDS.items():
        value = getattr(config, name)
        default = {} if isinstance(value, dict) else field.default
        if value != default and name not in _NOT_SHOWN:
            # Only a switch needs its value in the same word.
            words += (
                [f"--{name}={str(value).lower()}"] if isinstance(value, bool) else [f"--{name}", _written(name, value)]
            )
    shown = {name: getattr(config, name) for name in FIELDS if name not in _NOT_SHOWN}
    try:
        if from_flags(words[1:])[0] == Config(**shown):
            return shlex.join(words)
    except ConfigError:
        pass
    return "gunreal train --config config.toml --name again"


def _written(name: str, value: Any) -> str:
    if name == "tasks":
        return ",".join(value)
    if name == "task":
        value = {f"{task}.{option}": x for task, table in value.items() for option, x in table.items()}
    if isinstance(value, dict):
        return ",".join(f"{key}={_toml(x)}" for key, x in value.items())
    return str(value)


def _toml(value: Any) -> str:
    return tomli_w.dumps({"x": value}).strip().removeprefix("x = ")


def text(config: Config, repo_id: str, step: int, scores: Mapping[str, Any], curve: str | None) -> str:
    """The model card, with the metadata of the Hugging Face Hub.

    Args:
      config: configuration of the run.
      repo_id: name of the repository.
      step: agent steps of the weights.
      scores: statistics of an evaluation, as `gunreal.evaluate.summarize` returns them.
      curve: name of the picture of the learning curve, or None.
    """
    from huggingface_hub import EvalResult, ModelCardData

    name = repo_id.split("/")[-1]
    shown = f"{scores['mean']:.2f} +/- {scores['std']:.2f}"
    result = EvalResult("reinforcement-learning", config.env, config.env, "mean_reward", shown)
    tags = ["reinforcement-learning", "gunreal", *(task.split(":")[-1] for task in config.tasks)]
    data = ModelCardData(library_name="gunreal", tags=tags, model_name=name, eval_results=[result])
    tasks = f", with the auxiliary tasks {', '.join(config.tasks)}" if config.tasks else ""
    columns = ("mean", "median", "std", "min", "max", "episodes", "mean_length")
    cells = " | ".join(f"{scores[key]:.2f}" if isinstance(scores[key], float) else str(scores[key]) for key in columns)
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
            *(["", f"![Score over agent steps]({curve})"] if curve else []),
            *("", "## Use", "", "```python", "import gunreal", "", f'run = gunreal.load_from_hub("{repo_id}")'),
            *("policy = run.policy()", "print(run.evaluate(episodes=10).mean())", "```"),
            *("", "## Train", "", "```bash", command(config), "```", ""),
        ]
    )
