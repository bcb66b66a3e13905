"""The model card of a run: what it is, its scores and curve, how to use it, and the commands that train such a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gunreal.config.folders import CONFIG
from gunreal.config.schema import Config


def commands(repo_id: str) -> list[str]:
    """The command lines that train such a run with the settings that it has saved."""
    return [f"hf download {repo_id} {CONFIG} --local-dir .", f"gunreal train --config {CONFIG} --name again"]


def text(config: Config, repo_id: str, step: int, scores: Mapping[str, Any], curve: str | None) -> str:
    """The model card, with the metadata of the Hugging Face Hub.

    Args:
      config: configuration of the run.
      repo_id: name of the repository.
      step: agent steps of the weights.
      scores: statistics of an evaluation, as `gunreal.acting.episodes.summarize` returns them.
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
            *("policy = run.policy()", "print(run.evaluate(episodes=10).mean())", "```", ""),
            *("```bash", f"gunreal pull {repo_id}", f"gunreal evaluate {name}", "```"),
            *("", "## Train", "", "```bash", *commands(repo_id), "```", ""),
        ]
    )
