"""Drives one system at a time for `compare_peers.py`, in whatever interpreter has it: `peers.py NAME --progress FILE`.

All play Pong as the papers do: 4 gray frames of 84x84, skip 4 with the maximum of the last two, no sticky actions, 30
no-ops at most, clipped rewards. All learn each step once, with 16@8x8/4, 32@4x4/2 and 256 hidden units that policy and
value share. The rest is each system's own, at the values that ran fastest; the drivers' keyword arguments change it.
Only the standard library is imported at the top: each driver imports its own system.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import json
import os
import platform
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

CORES = len(os.sched_getaffinity(0))


class Progress:
    """A file that two processes share: how many agent steps have been learned from, and whether to stop."""

    def __init__(self, path: str | Path):
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)

    def report(self, steps: int) -> bool:
        """The driver's side: tells that so many agent steps, since the start, are acted and learned; False: stop."""
        os.pwrite(self._fd, struct.pack("q", steps), 0)
        return not os.pread(self._fd, 1, 8)

    def steps(self) -> int:
        """The watcher's side: what was reported last; 0 at first."""
        return struct.unpack("q", os.pread(self._fd, 8, 0) or bytes(8))[0]

    def stop(self) -> None:
        """The watcher's side: the driver's next report is to be its last."""
        os.pwrite(self._fd, b"!", 8)

    def close(self) -> None:
        """Closes this process's side."""
        os.close(self._fd)


def gunreal(progress: Progress, *, flags: Sequence[str] = ()) -> None:
    """This library: the system of `python -m gunreal.train`, without its display and its checkpoints."""
    import dataclasses

    from measure import watched

    from gunreal.config.flags import from_flags

    class Reporter(NamedTuple):
        system: Any

        def tick(self, run: Any) -> None:
            if not progress.report(self.system.metrics.steps_trained):
                self.system.stop("steps")

    watched(dataclasses.replace(from_flags(["gunreal", *flags])[0], steps=10**12), Reporter)


def sb3(progress: Progress, *, envs: int = 32, n_steps: int = 20, threads: int = CORES, processes: bool = True) -> None:
    """Stable-Baselines3's A2C on its own Atari wrappers: synchronous, a batch of `envs` x `n_steps` an update.

    Args:
      progress: reported before each rollout, when the one before has been learned.
      envs: environments; with `processes` each has its own, else they are stepped one after the other.
      n_steps: agent steps of a rollout.
      threads: of PyTorch.
      processes: SubprocVecEnv, else DummyVecEnv.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin take the cores from the environments
    import torch
    from stable_baselines3 import A2C
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecTransposeImage
    from torch import nn

    class Torso(BaseFeaturesExtractor):
        def __init__(self, observation_space: Any, features_dim: int = 256):
            super().__init__(observation_space, features_dim)
            convolutions = [nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU()]
            self.layers = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(32 * 9 * 9, features_dim), nn.ReLU())

        def forward(self, frames: torch.Tensor) -> torch.Tensor:
            return self.layers(frames)

    class Report(BaseCallback):
        go_on = True

        def _on_rollout_start(self) -> None:
            self.go_on = progress.report(self.num_timesteps)

        def _on_step(self) -> bool:
            return self.go_on

    torch.set_num_threads(threads)
    games = make_atari_env(
        "ale_py:PongNoFrameskip-v4",
        envs,
        seed=1,
        wrapper_kwargs={"terminal_on_life_loss": False},
        vec_env_cls=SubprocVecEnv if processes else DummyVecEnv,
        vec_env_kwargs={"start_method": "fork"} if processes else {},  # by forkserver each process imports PyTorch: 3 s
    )
    env = VecFrameStack(VecTransposeImage(games), 4, channels_order="first")
    network = {"features_extractor_class": Torso, "net_arch": []}
    model = A2C("CnnPolicy", env, n_steps=n_steps, ent_coef=0.01, policy_kwargs=network, device="cpu")
    model.learn(10**12, callback=Report(), log_interval=10**9)
    env.close()


def sf(progress: Progress, *, workers: int = CORES, envs: int = 16, rollout: int = 20, batch: int = 640) -> None:
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


class Peer(NamedTuple):
    """A system that can be driven.

    Attributes:
      title: what it is.
      drive: trains until it is told to stop; its keyword arguments are the settings that can be changed.
      modules: what it imports.
      packages: whose versions are told, where they are installed.
      install: how to get it, in words that end a sentence.
      flags: this library's own, for its training; None: another system.
    """

    title: str
    drive: Callable[..., None]
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    install: str
    flags: tuple[str, ...] | None = None


_OURS = (
    gunreal,
    ("gunreal", "ale_py"),
    ("gunreal", "tensorflow", "tensorflow-cpu", "jax", "ale-py"),
    "pip install -e .",
)
PEERS = {
    "gunreal": Peer("gunreal, no auxiliary task", *_OURS, flags=()),
    "gunreal-tasks": Peer("gunreal, pc,vr,rp", *_OURS, flags=("--tasks=pc,vr,rp",)),
    "sb3": Peer(
        "Stable-Baselines3 A2C",
        sb3,
        ("stable_baselines3", "ale_py", "cv2"),
        ("stable-baselines3", "torch", "gymnasium", "ale-py", "numpy"),
        "pip install torch stable-baselines3 ale-py opencv-python-headless",
    ),
    "sf": Peer(
        "Sample Factory APPO",
        sf,
        ("sample_factory", "sf_examples", "envpool", "shimmy"),
        ("sample-factory", "torch", "envpool", "gymnasium", "numpy"),
        "pip install torch sample-factory envpool==0.8.4 'shimmy<2', in an environment of its own (it needs numpy<2, "
        "gymnasium<1)",
    ),
}


def settings(drive: Callable[..., None]) -> dict[str, Any]:
    """The settings of a driver and their defaults."""
    keywords = inspect.signature(drive).parameters.values()
    return {word.name: word.default for word in keywords if word.kind is word.KEYWORD_ONLY}


def main(argv: Sequence[str]) -> None:
    """Drives the named system; without `--progress` only imports it and prints what it is as JSON."""
    parser = argparse.ArgumentParser("peers.py", description=__doc__)
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("--progress", metavar="FILE", help="shared with compare_peers.py")
    parser.add_argument(
        "--settings", type=json.loads, default={}, metavar="JSON", help="the driver's keyword arguments"
    )
    args = parser.parse_args(argv)
    peer = PEERS[args.name]
    if args.progress:
        peer.drive(Progress(args.progress), **args.settings)
        return
    for module in peer.modules:
        importlib.import_module(module)
    versions = {"python": platform.python_version()}
    for package in peer.packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    print(json.dumps({"versions": versions, "settings": settings(peer.drive) | args.settings}))


if __name__ == "__main__":
    main(sys.argv[1:])
