"""Planned trainings and what they would have left behind, for the tests of the tools that train experiments."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from experiments import papers, table, trainings

from gunreal.config.files import save

TOOLS = Path(__file__).parents[2] / "tools"
CATCH = "gunreal/Catch-v0"
ABLATION = papers.EXPERIMENTS["ablation"]


def small(*settings: str) -> table.LearningExperiment:
    """The ablation with some of its settings."""
    return dataclasses.replace(ABLATION, settings={name: ABLATION.settings[name] for name in settings})


def plan(tmp_path, experiment, seeds=1, extra=(), **options):
    return trainings.plan(
        experiment, seeds, extra, **({"env": CATCH, "steps": 1000, "logdir": str(tmp_path)} | options)
    )


def make_run(training, *lines: dict, checkpoint: bool = True) -> Path:
    """What a training leaves behind."""
    training.path.mkdir(parents=True)
    save(training.config, training.path / "config.toml")
    full = [{"step": 0, "seconds": 1.0, "score_mean": None, "episodes": 0} | line for line in lines]
    (training.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in full))
    if checkpoint:
        (training.path / "checkpoints").mkdir()
        (training.path / "checkpoints" / "step_000000000500.npz").touch()
    return training.path


FINISHED = {"step": 1001, "score_mean": 2.0, "stopped_by": "steps"}


def curve(*scores: float, every: int = 100) -> list[dict]:
    """Lines of metrics with these scores."""
    return [
        {"step": every * i, "seconds": 2.0 * i, "score_mean": score, "episodes": 60 * i}
        for i, score in enumerate(scores, 1)
    ]
