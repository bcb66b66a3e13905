"""Drivers for Sample Factory 2.x, which they import when they are called."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from peers.curve import Curve, append_score
from peers.progress import CORES, Progress


def drive(progress: Progress, *, workers: int = CORES, envs: int = 16, rollout: int = 20, batch: int = 640) -> None:
    """Trains asynchronous APPO with Sample Factory's EnvPool integration.

    Args:
      progress: receives a report after each update.
      workers: number of processes that step environments.
      envs: environments per worker.
      rollout: agent steps per rollout.
      batch: agent steps per update.
    """
    from sf_examples.envpool.atari.train_envpool_atari import parse_atari_args, register_atari_components

    register_atari_components()
    with tempfile.TemporaryDirectory() as folder:
        flags = {
            "env": "atari_pong",
            "train_dir": folder,
            "seed": 1,
            "num_workers": workers,
            "env_agents": envs,
            "rollout": rollout,
            "batch_size": batch,
            "num_batches_per_epoch": 1,
            "num_epochs": 1,
            "encoder_conv_architecture": "convnet_impala",  # 16@8x8/4, 32@4x4/2
            "encoder_conv_mlp_layers": 256,
            "lr_schedule": "constant",
        }
        _train(parse_atari_args, flags, progress.report)


def learn(curve: Curve, game: str, seed: int, *, workers: int = 8) -> None:
    """Trains APPO with Sample Factory's Atari wrappers and settings (sf_examples/atari/atari_params.py).

    Args:
      curve: receives the learning curve.
      game: name of the game, as in `ALE/NAME-v5`.
      seed: random seed.
      workers: number of processes that step environments.
    """
    from sample_factory.envs.env_utils import register_env
    from sf_examples.atari.train_atari import parse_atari_args

    name = f"atari_{game.lower()}"
    register_env(name, functools.partial(_make, f"{game}NoFrameskip-v4", str(curve.scores_file)))
    _train(parse_atari_args, _learning(curve, name, seed) | {"num_workers": workers}, curve.report, curve.start)


def learn_envpool(curve: Curve, game: str, seed: int, *, workers: int = 4, envs: int = 64) -> None:
    """Trains asynchronous APPO with EnvPool and Sample Factory's settings for it (sf_examples/envpool/atari).

    Args:
      curve: receives the learning curve.
      game: name of the game, as in `ALE/NAME-v5`.
      seed: random seed.
      workers: number of processes that step environments.
      envs: environments per worker.
    """
    from sample_factory.envs.env_utils import register_env
    from sf_examples.envpool.atari.train_envpool_atari import parse_atari_args

    name = f"atari_{game.lower()}"
    register_env(name, functools.partial(_make_envpool, f"{game}-v5", str(curve.scores_file)))
    flags = _learning(curve, name, seed) | {"num_workers": workers, "env_agents": envs}
    _train(parse_atari_args, flags, curve.report, curve.start)


def _learning(curve: Curve, name: str, seed: int) -> dict[str, Any]:
    folder = curve.folder / "sample_factory"
    return {"env": name, "train_dir": folder, "seed": seed, "train_for_env_steps": curve.steps}


def _train(
    parse: Callable[[list[str]], Any],
    flags: Mapping[str, Any],
    report: Callable[[int], bool],
    start: Callable[[], None] = lambda: None,
) -> None:
    """Trains until `report`, which receives the agent steps after each update, returns False."""
    from sample_factory.algo.runners.runner import AlgoObserver
    from sample_factory.train import make_runner

    class Report(AlgoObserver):
        def on_start(self, runner: Any) -> None:
            start()

        def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
            if not report(sum(runner.env_steps.values())):
                runner.cfg.train_for_env_steps = 0

    # Without the frame skip, Sample Factory counts agent steps instead of frames.
    flags = {**flags, "device": "cpu", "summaries_use_frameskip": False}
    _, runner = make_runner(parse([f"--{name}={value}" for name, value in flags.items()]))
    runner.register_observer(Report())
    if runner.init() or runner.run():
        raise RuntimeError("Sample Factory failed; its log above shows the error")


def _make(env_id: str, scores: str, name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> Any:
    """Makes the environment of Sample Factory's Atari example, which appends raw scores of whole games to a file."""
    import ale_py  # noqa: F401  (registers the games)
    import gymnasium
    from sf_examples.atari import atari_utils

    class Scores(gymnasium.Wrapper):
        def step(self, action: Any) -> Any:
            result = self.env.step(action)
            if "episode" in result[-1]:
                append_score(scores, float(result[-1]["episode"]["r"]))
            return result

    known = atari_utils.ATARI_ENVS
    if all(spec.name != name for spec in known):
        known.append(atari_utils.AtariSpec(name, env_id))
    return Scores(atari_utils.make_atari_env(name, cfg, env_config, render_mode))


def _make_envpool(
    env_id: str, scores: str, name: str, cfg: Any, env_config: Any, render_mode: str | None = None
) -> Any:
    """Makes the environments of Sample Factory's EnvPool example, which append raw scores of whole games to a file."""
    import gymnasium
    import numpy as np
    from sf_examples.atari.atari_utils import AtariSpec
    from sf_examples.envpool.atari import envpool_atari_utils as utils

    class Scores(gymnasium.Wrapper):
        def reset(self, **kwargs: Any) -> Any:
            self._returns = np.zeros(self.num_agents)
            return self.env.reset(**kwargs)

        def step(self, action: Any) -> Any:
            observations, rewards, terminated, truncated, info = self.env.step(action)
            self._returns += info["reward"]
            # An episode ends with a life, and a game with its last life or at the time limit.
            for agent in np.flatnonzero(info["terminated"].astype(bool) | truncated):
                append_score(scores, self._returns[agent])
                self._returns[agent] = 0.0
            return observations, rewards, terminated, truncated, info

    if all(spec.name != name for spec in utils.ENVPOOL_ATARI_ENVS):
        utils.ENVPOOL_ATARI_ENVS.append(AtariSpec(name, env_id))
    return Scores(utils.make_atari_env(name, cfg, env_config, render_mode))
