"""Lines of metrics for Weights & Biases (`--track wandb`)."""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gunreal.config.schema import Config, ConfigError

_FOLDER, _ID = "wandb", "gunreal-id.txt"
_EVALUATED = ("eval_score_mean", "eval_score_std", "eval_length_mean")  # by the step of the evaluated weights


class Tracker:
    """A run of Weights & Biases with the configuration, and with the metrics over agent steps.

    The project is "gunreal" unless WANDB_PROJECT is set. WANDB_MODE=offline writes to the run's folder only. A resumed
    run goes on as the same run, whose id is kept in its folder.

    Raises:
      ConfigError: Weights & Biases refuses the run, for example because nobody is logged in.
    """

    def __init__(self, config: Config, run_dir: Path):
        import wandb

        self._error = wandb.Error
        kept = run_dir / _FOLDER / _ID
        identity = kept.read_text() if kept.exists() else secrets.token_hex(4)
        try:
            self._run: Any = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "gunreal"),
                name=run_dir.name,
                id=identity,
                resume="allow",
                dir=run_dir,
                config=dataclasses.asdict(config),
                settings=wandb.Settings(console="off", silent=True),  # the display is on the console
            )
            self._run.define_metric("*", step_metric="step")  # a resumed run may take some steps again
            for name in _EVALUATED:  # not "eval_*": of two patterns that match, W&B takes either
                self._run.define_metric(name, step_metric="eval_step")
        except wandb.Error as error:
            raise ConfigError(f"--track wandb: {error}; run wandb login, or set WANDB_MODE=offline") from error
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(identity)  # only now, so that a refused resume leaves nothing

    def add(self, line: Mapping[str, Any]) -> None:
        """Sends the values of a line of metrics. Raises OSError if they cannot be sent."""
        try:
            self._run.log({name: value for name, value in line.items() if value is not None})
        except self._error as error:
            raise OSError(f"Weights & Biases: {error}") from error

    def close(self) -> None:
        """Sends what is left and ends. Another call has no effect."""
        run, self._run = self._run, None
        if run is not None:
            run.finish()
