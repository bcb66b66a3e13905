"""A run that was trained: its configuration, its metrics and its policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gunreal import checkpoint, metrics, registry, runs
from gunreal.config import Config, load as load_config
from gunreal.envs.make import describe
from gunreal.predictor import sample_actions


class Run:
    """What `gunreal.train` returns and `gunreal.load` finds.

    Attributes:
      path: the run's folder.
      config: the resolved configuration.
      metrics: the lines of `metrics.jsonl`, oldest first.
    """

    def __init__(self, path: Path, config: Config, which: str = "newest"):
        self.path, self.config, self._which = path, config, which
        self.metrics: list[dict[str, Any]] = metrics.read(path / metrics.FILE)
        self._learner: Any = None

    @property
    def learner(self) -> Any:
        """The network with the checkpoint's weights; built when it is first asked for."""
        if self._learner is None:
            from gunreal.system import build_learner

            tasks = registry.load_tasks(self.config.tasks, self.config.task)
            self.spec = describe(self.config)
            saved = checkpoint.load(self.path, self._which)
            self._learner = build_learner(self.config, self.spec, tasks)
            self._learner.set_state({name: x for name, x in saved.state.items() if not name.startswith("ring")})
        return self._learner

    def act(self, observation: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """Actions of the policy.

        Args:
          observation: `[*spec.observation]` or a batch `[n, *spec.observation]`: the stack of the newest frames, NCHW.
          rng: draws from the policy; None takes the most probable action.

        Returns:
          int32, `[]` or `[n]`.
        """
        learner = self.learner
        observation = np.asarray(observation, self.spec.dtype)
        single = observation.ndim == len(self.spec.observation)
        logits, _ = learner.predict("base", observation[None] if single else observation)
        action = logits.argmax(1).astype(np.int32) if rng is None else sample_actions(logits, rng)[0]
        return action[0] if single else action


def load(path: str | Path, which: str = "newest") -> Run:
    """Opens a run.

    Args:
      path: its folder, "runs/NAME".
      which: "newest", "best", or the path of a checkpoint.

    Raises:
      ConfigError: there is no run at `path`.
    """
    folder = runs.find(str(path))
    return Run(folder, Config(**load_config(folder / runs.CONFIG)), which)
