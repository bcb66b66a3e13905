"""Runs that have nothing but a configuration and metrics."""

from __future__ import annotations

import json
from pathlib import Path

from gunreal.config.folders import prepare_run_dir
from gunreal.config.schema import Config


def make_run(folder: Path, name: str, scores: list[float | None]) -> Path:
    """A run with a line of metrics every 100 steps and 2 seconds."""
    path = prepare_run_dir(Config(logdir=str(folder), name=name))
    lines = [{"step": 100 * i, "seconds": 2.0 * i, "score_mean": score} for i, score in enumerate(scores)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
