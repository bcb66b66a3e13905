"""A trained run: its configuration, its metrics and its policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from gunreal.acting.episodes import MAX_STEPS, play
from gunreal.acting.policy import Policy, stacked
from gunreal.acting.predictor import sample_actions
from gunreal.config import folders
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.make import make_raw
from gunreal.envs.raw import Raw
from gunreal.experience.spec import Spec
from gunreal.learning import devices
from gunreal.learning.learner import Learner
from gunreal.learning.task import AuxiliaryTask, of_tasks
from gunreal.records import checkpoint, metrics
from gunreal.records import interface as saved_interface
from gunreal.records.checkpoint import Checkpoint
from gunreal.tasks import registry


class Run:
    """A trained run, as returned by `gunreal.train` and `gunreal.load`. Everything is loaded on first use.

    Attributes:
      path: the run's folder.
      config: the resolved configuration. Settings that follow from the machine, such as `threads`, are "auto" unless
        the user has set them.
    """

    def __init__(self, path: Path, config: Config, which: str | int | Path = "newest"):
        self.path, self.config, self._which = path, config, which

    def __repr__(self) -> str:
        tasks = f", tasks {','.join(self.config.tasks)}" if self.config.tasks else ""
        return f"<gunreal.Run {self.path}: {self.config.env}, {self.config.objective}{tasks}>"

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, oldest first. The page Metrics describes their keys."""
        return metrics.lines(self.path)

    @cached_property
    def tasks(self) -> tuple[AuxiliaryTask, ...]:
        """The auxiliary tasks, with their options set."""
        with devices.preferred(self._usable.backend):
            return registry.load_tasks(self.config.tasks, self.config.task)

    @cached_property
    def spec(self) -> Spec:
        """Shapes of observations and actions."""
        return self._interface[0]

    @cached_property
    def _interface(self) -> tuple[Spec, Raw]:
        return saved_interface.of(self.path, self.config)

    @property
    def checkpoint(self) -> Path:
        """The file that the weights were loaded from.

        Raises:
          FileNotFoundError: there is no intact checkpoint.
        """
        return self._saved.path

    @property
    def step(self) -> int:
        """Number of agent steps that the weights were trained for. Raises FileNotFoundError as `checkpoint` does."""
        return self._saved.step

    @cached_property
    def learner(self) -> Learner:
        """The network with the checkpoint's weights, and the heads of its tasks. The first access loads Keras.

        Agents of the zoo have no heads.

        Raises:
          ConfigError: the checkpoint belongs to another run, Keras is loaded with another backend, or a task is no
            longer installed.
          FileNotFoundError: there is no intact checkpoint.
        """
        return self._restored(self.heads, Learner.set_state) if self._saved.is_whole() else self.actor_critic

    @cached_property
    def heads(self) -> tuple[AuxiliaryTask, ...]:
        """The tasks whose heads `learner` has. Raises ConfigError and FileNotFoundError as `learner` does."""
        return self.tasks if self._saved.is_whole() else ()

    @cached_property
    def actor_critic(self) -> Learner:
        """The network without heads, for acting. The tasks need not be installed. The first access loads Keras.

        Raises:
          ConfigError: the checkpoint belongs to another run, or Keras is loaded with another backend.
          FileNotFoundError: there is no intact checkpoint.
        """
        return self._restored((), Learner.set_weights)

    @cached_property
    def _usable(self) -> Config:
        """The configuration with a backend that is installed here."""
        return dataclasses.replace(self.config, backend=devices.usable(self.config.backend))

    @cached_property
    def _saved(self) -> Checkpoint:
        """The checkpoint without replay."""
        saved = checkpoint.load(self.path, self._which)
        return saved._replace(state=saved.learned(), blobs={})

    def _restored(
        self, tasks: tuple[AuxiliaryTask, ...], restore: Callable[[Learner, Mapping[str, np.ndarray]], None]
    ) -> Learner:
        spec, saved = of_tasks(self.spec, tasks) if tasks else self.spec, self._saved
        devices.check_loaded(self._usable.backend)
        from gunreal.runtime.system import build_learner, on_this_machine

        learner = build_learner(on_this_machine(self._usable), spec, tasks)
        try:
            restore(learner, saved.state)
        except ValueError as error:
            raise ConfigError(f"{saved.path} is not a checkpoint of {self.path}: {error}") from error
        return learner

    def policy(self, num_envs: int | None = None, *, sample: bool = True, seed: int = 1) -> Policy:
        """Returns the policy for your own loop, which acts on observations as the environment returns them.

        Neither the environment nor the auxiliary tasks need to be installed.

        Args:
          num_envs: number of environments to act in at the same time. Observations and actions then have a batch axis.
            None means a single environment without a batch axis.
          sample: whether to sample actions from the policy, as in training and evaluation, instead of taking the most
            probable one.
          seed: random seed of the sampled actions.

        Raises:
          ConfigError, FileNotFoundError: as `actor_critic`.
          ValueError: `num_envs` is less than 1.
        """
        return Policy(self.actor_critic, self.config, *self._interface, num_envs, sample=sample, seed=seed)

    def make_env(self, **env_args: Any) -> gymnasium.Env:
        """Opens the environment of the run as a Gymnasium environment, with the observations that `policy` acts on.

        It is in this process, beside the network. The page Environments says what this may not be mixed with. Atari
        games have the run's frame skip, protocol and actions. Other environments have the run's `env_args`.

        Args:
          **env_args: further arguments, such as `render_mode="rgb_array"`, and others in place of the run's.

        Raises:
          ConfigError: the environment is not installed, or does not take the arguments.
        """
        return make_raw(dataclasses.replace(self.config, env_args={**self.config.env_args, **env_args}))

    def act(self, observation: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """Chooses actions for stacked observations. Use `policy` for observations as the environment returns them.

        Args:
          observation: `[*spec.observation]` or a batch `[n, *spec.observation]`. The newest frames are stacked along
            the channels, oldest first (NCHW; uint8 images). Vectors of uint8 are divided by 255, as in training.
          rng: random generator to sample actions with, as in training. None takes the most probable action.

        Returns:
          Actions, int32 `[]` or `[n]`.

        Raises:
          ConfigError, FileNotFoundError: as `actor_critic`.
          ValueError: the observation has the wrong shape or type, or the network is recurrent.
        """
        batch, lead = stacked(self.spec, observation)
        logits, _ = self.actor_critic.predict("base", batch)
        actions = logits.argmax(1).astype(np.int32) if rng is None else sample_actions(logits, rng)[0]
        return actions.reshape(lead)

    def features(self, observation: np.ndarray) -> np.ndarray:
        """Computes the features that policy, value and tasks share, which are the outputs of the torso's last layer.

        Args:
          observation: stacked observations, as in `act`. `Policy.observation` has those of its last actions.

        Returns:
          Features, float32 `[F]` or `[n, F]`.

        Raises:
          ConfigError, FileNotFoundError, ValueError: as `act`.
        """
        batch, lead = stacked(self.spec, observation)
        return self.actor_critic.features(batch).reshape(*lead, -1)

    def evaluate(
        self, episodes: int = 30, *, seed: int = 1, sample: bool = True, max_steps: int = MAX_STEPS
    ) -> np.ndarray:
        """Plays new episodes. Returns their unclipped scores, float64 `[episodes]`.

        Args:
          episodes: number of episodes, at least 1.
          seed: random seed of the episodes.
          sample: whether to sample actions from the policy instead of taking the most probable one.
          max_steps: maximum length of an episode, in agent steps.

        Raises:
          AgentFailure: the environment fails.
          ConfigError, FileNotFoundError: as `actor_critic`.
          ValueError: there are no episodes to play.
        """
        ended = play(self.actor_critic, self.config, self.spec, episodes, seed=seed, sample=sample, max_steps=max_steps)
        return np.array([episode.score for episode in sorted(ended)])

    def video(self, path: str | Path, *, seed: int = 1, sample: bool = True, max_steps: int = MAX_STEPS) -> Path:
        """Plays one new episode and writes a video of it. Returns its path. Needs `pip install "gunreal[video]"`.

        Args:
          path: name of the `.mp4` file. An existing file is replaced when the new one is complete.
          seed: as in `evaluate`.
          sample: as in `evaluate`.
          max_steps: as in `evaluate`.

        Raises:
          AgentFailure: the environment fails.
          ConfigError: the package is missing, the file cannot be written, observations are not images, or as `learner`.
          FileNotFoundError: there is no intact checkpoint.
        """
        from gunreal.records.video import Recorder

        options: dict[str, Any] = {"seed": seed, "sample": sample, "max_steps": max_steps}
        with Recorder(path, self) as recorder:
            list(play(self.actor_critic, self.config, self.spec, 1, watch=recorder, **options))
        return Path(path)

    def export(self, path: str | Path) -> Path:
        """Writes the policy and the value for use without this library.

        Scaling and normalization of observations are part of the file. Resizing and stacking of frames are not. The
        page Export and share lists the inputs and outputs.

        Args:
          path: `FILE.keras` for Keras 3 with any backend, or `FILE.onnx`, which needs `pip install "gunreal[onnx]"`.

        Returns:
          The path.

        Raises:
          ConfigError: the file has another suffix or cannot be written, a package is missing, or as `actor_critic`.
          FileNotFoundError: there is no intact checkpoint.
        """
        from gunreal.runtime import exporting

        out = exporting.check(path)
        return exporting.export(self._usable, self.spec, self.actor_critic.get_state(), out)

    def plot(
        self, path: str | Path | None = None, *, x: str | None = None, y: str = "score_mean", smooth: int = 1
    ) -> Path:
        """Draws a learning curve. Needs `pip install "gunreal[plot]"`.

        Args:
          path: picture to write, in the format of its name. The default is `curve.png` in the run's folder.
          x: key of `metrics` for the horizontal axis. The default is the agent steps at which `y` was measured.
          y: key of `metrics` for the vertical axis.
          smooth: width of the moving mean, an odd number of lines of metrics.

        Returns:
          The path. In a notebook, `IPython.display.Image(run.plot())` shows it.

        Raises:
          ConfigError: the package or the values are missing, `smooth` is even or below 1, or `path` is not writable or
            has an unknown format.
        """
        from gunreal.records import curves

        curves.check_smoothing(smooth)
        curves.check_matplotlib()
        out = self.path / "curve.png" if path is None else Path(path)
        panels = curves.panels({self.path.name: [self.path]}, [(x or curves.steps_of(y), y)], smooth)
        curves.draw(panels, out, width=smooth)
        return out


def load(path: str | Path, which: str | int | Path = "newest") -> Run:
    """Loads a trained run.

    Args:
      path: folder of the run, such as "runs/NAME", the name of a run in `runs`, or an agent of the zoo, "zoo:NAME".
      which: checkpoint to use: "newest", "best", a step, the name of one of the run's checkpoints, or a path.

    Raises:
      ConfigError: there is no run at `path`.
      FileNotFoundError: there is no such checkpoint. A run without any can be loaded.
    """
    folder = folders.find(str(path))
    if which != "newest":
        which = checkpoint.find(folder, which).absolute()
    return Run(folder, folders.saved_config(folder), which)
