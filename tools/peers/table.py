"""The systems that can be compared. A driver imports its system only when it is called."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import platform
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

from peers import ours, sample_factory, sb3


class Peer(NamedTuple):
    """A system that can be trained.

    Attributes:
      title: name in tables.
      modules: modules that it needs.
      packages: packages whose versions are reported.
      install: command that installs it, as the end of an error message.
      drive: driver, which trains on Pong until it is stopped.
      flags: training flags if the system is gunreal, otherwise None.
    """

    title: str
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    install: str
    drive: Callable[..., None]
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
    ours.drive,
    flags=(),
)
PEERS = {
    "gunreal": _OURS,
    "gunreal-tasks": _OURS._replace(title="gunreal, pc,vr,rp", flags=("--tasks=pc,vr,rp",)),
    "sb3": Peer(
        "Stable-Baselines3 A2C",
        ("stable_baselines3", "ale_py", "cv2"),
        ("stable-baselines3", "torch", "gymnasium", "ale-py", "numpy"),
        "pip install torch stable-baselines3 ale-py opencv-python-headless",
        sb3.drive,
    ),
    "sf": Peer(
        "Sample Factory APPO",
        ("sample_factory", "sf_examples", "envpool", "shimmy", "ale_py"),
        ("sample-factory", "torch", "envpool", "gymnasium", "ale-py", "numpy"),
        "pip install torch sample-factory envpool==0.8.4 'shimmy<2' ale-py==0.10.1, in an environment of its own (it "
        "needs numpy<2, gymnasium<1)",
        sample_factory.drive,
    ),
}


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
