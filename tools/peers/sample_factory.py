"""The driver for Sample Factory 2.x, which it imports when it is called."""

from __future__ import annotations

import tempfile
from typing import Any

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
            "device": "cpu",
            "summaries_use_frameskip": False,  # Sample Factory then counts agent steps instead of frames
        }
        _, runner = make_runner(parse_atari_args([f"--{name}={value}" for name, value in flags.items()]))
        runner.register_observer(Report())
        if runner.init() or runner.run():
            raise RuntimeError("Sample Factory failed; its log above shows the error")
