"""The systems that can be compared. A driver imports its system only when it is called."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import platform
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

from peers import cleanrl, ours, sample_factory, sb3


class Peer(NamedTuple):
    """A system that can be trained.

    Attributes:
      title: name in tables.
      modules: modules that it needs.
      packages: packages whose versions are reported.
      install: command that installs it, as the end of an error message.
      drive: driver for speed measurements, which trains on Pong until it is stopped, or None.
      learn: driver for learning curves, which trains on a game for a number of steps, or None.
      flags: training flags if the system is gunreal, otherwise None.
    """

    title: str
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    install: str
    drive: Callable[..., None] | None = None
    learn: Callable[..., None] | None = None
    flags: tuple[str, ...] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether the system is gunreal."""
        return self.flags is not None


_OURS = Peer(
    "gunreal, no task",
    ("gunreal", "ale_py"),
    ("gunreal", "tensorflow", "tensorflow-cpu", "jax", "ale-py"),
    "pip install -e .",
    drive=ours.drive,
    flags=(),
)
_SB3 = Peer(
    "Stable-Baselines3 A2C",
    ("stable_baselines3", "ale_py", "cv2"),
    ("stable-baselines3", "torch", "gymnasium", "ale-py", "numpy"),
    "pip install torch stable-baselines3 ale-py opencv-python-headless",
)
_CLEANRL = Peer(
    "CleanRL",
    ("cleanrl.pqn_atari_envpool",),
    ("cleanrl", "torch", "envpool", "gym", "numpy"),
    "pip install --no-deps git+https://github.com/vwxyzjn/cleanrl@fe8d8a0 and pip install torch tensorboard tyro "
    "envpool==0.8.4 gym==0.23.1 'numpy<2', in an environment of its own with Python 3.10",
)
_SF = Peer(
    "Sample Factory APPO",
    ("sample_factory", "sf_examples", "envpool", "shimmy", "ale_py"),
    ("sample-factory", "torch", "envpool", "gymnasium", "ale-py", "numpy"),
    "pip install torch sample-factory envpool==0.8.4 'shimmy<2' ale-py==0.10.1, in an environment of its own (it "
    "needs numpy<2, gymnasium<1)",
    drive=sample_factory.drive,
    learn=sample_factory.learn,
)
PEERS = {
    "gunreal": _OURS,
    "gunreal-tasks": _OURS._replace(title="gunreal, pc,vr,rp", flags=("--tasks=pc,vr,rp",)),
    "sb3": _SB3._replace(drive=sb3.drive),
    "sb3-a2c": _SB3._replace(learn=sb3.learn_a2c),
    "sb3-ppo": _SB3._replace(title="Stable-Baselines3 PPO", learn=sb3.learn_ppo),
    "sf": _SF,
    "sf-envpool": _SF._replace(title="Sample Factory APPO, EnvPool", drive=None, learn=sample_factory.learn_envpool),
    "cleanrl-ppo": _CLEANRL._replace(title="CleanRL PPO", learn=cleanrl.learn_ppo),
    "cleanrl-pqn": _CLEANRL._replace(title="CleanRL PQN", learn=cleanrl.learn_pqn),
}
LEARNING = tuple(name for name, peer in PEERS.items() if peer.learn or peer.is_ours)
SPEED = tuple(name for name, peer in PEERS.items() if peer.drive)


def settings(driver: Callable[..., None]) -> dict[str, Any]:
    """Returns the settings of a driver, which are its keyword-only arguments, and their defaults."""
    keywords = inspect.signature(driver).parameters.values()
    return {word.name: word.default for word in keywords if word.kind is word.KEYWORD_ONLY}


def versions(peer: Peer) -> dict[str, str]:
    """Imports a system and returns the versions of its packages. Raises ImportError."""
    for module in peer.modules:
        importlib.import_module(module)
    found = {"python": platform.python_version()}
    for package in peer.packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found
