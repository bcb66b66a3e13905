"""Drivers for Sample Factory 2.x, which they import when they are called."""

from __future__ import annotations

import functools
import tempfile
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
    from sample_factory.algo.runners.runner import AlgoObserver
    from sample_factory.train import make_runner
    from sf_examples.envpool.atari.train_envpool_atari import parse_atari_args, register_atari_components

    class Report(AlgoObserver):
        def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
            if not progress.report(sum(runner.env_steps.values())):
                runner.cfg.train_for_env_steps = 0

    with tempfile.TemporaryDirectory() as folder:
        flags = {
            "env": "atari_pong",
            "train_dir": folder,
            "device": "cpu",
            "seed": 1,
            "async_rl": True,
            "num_workers": workers,
            "env_agents": envs,
            "rollout": rollout,
            "batch_size": batch,
            "num_batches_per_epoch": 1,
            "num_epochs": 1,
            "encoder_conv_architecture": "convnet_impala",  # 16@8x8/4, 32@4x4/2
            "encoder_conv_mlp_layers": 256,
            "lr_schedule": "constant",
            "summaries_use_frameskip": False,  # counts agent steps, not frames
        }
        register_atari_components()
        _, runner = make_runner(parse_atari_args([f"--{name}={value}" for name, value in flags.items()]))
        runner.register_observer(Report())
        if runner.init() or runner.run():
            raise RuntimeError("Sample Factory failed; its log above shows the error")


def learn(curve: Curve, game: str, seed: int, *, workers: int = 8) -> None:
    """Trains APPO with Sample Factory's Atari wrappers and settings (sf_examples/atari/atari_params.py).

    Args:
      curve: receives the learning curve.
      game: name of the game, as in `ALE/NAME-v5`.
      seed: random seed.
      workers: number of processes that step environments.
    """
    from sample_factory.algo.runners.runner import AlgoObserver
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import make_runner
    from sf_examples.atari.train_atari import parse_atari_args

    class Report(AlgoObserver):
        def on_start(self, runner: Any) -> None:
            curve.start()

        def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
            if not curve.report(sum(runner.env_steps.values())):
                runner.cfg.train_for_env_steps = 0

    name = f"atari_{game.lower()}"
    register_env(name, functools.partial(_make, f"{game}NoFrameskip-v4", str(curve.scores_file)))
    flags = {
        "env": name,
        "train_dir": curve.folder / "sample_factory",
        "device": "cpu",
        "seed": seed,
        "num_workers": workers,
        "train_for_env_steps": curve.steps,
        "summaries_use_frameskip": False,  # counts agent steps, not frames
    }
    _, runner = make_runner(parse_atari_args([f"--{name}={value}" for name, value in flags.items()]))
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
