"""Trains Sample Factory 2.x, which is imported when a driver is called."""

from __future__ import annotations

import tempfile
from typing import Any

from peers.progress import CORES, Progress


def drive(progress: Progress, *, workers: int = CORES, envs: int = 16, rollout: int = 20, batch: int = 640) -> None:
    """Sample Factory's APPO, asynchronous, on its own EnvPool integration.

    Args:
      progress: reported after each update.
      workers: processes that step environments, beside the learner's and the inference worker's.
      envs: environments of each.
      rollout: agent steps of a rollout.
      batch: agent steps of an update.
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
            raise RuntimeError("Sample Factory stopped with an error; it is in its log, above")
