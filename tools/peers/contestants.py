"""The systems to compare, with their settings and interpreters, as given on the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from measuring.gauge import Failed

from gunreal.config.flags import from_flags
from gunreal.config.schema import ConfigError, close_match
from peers.table import PEERS, Peer, settings

PROGRAM = Path(__file__).parents[1] / "train_peer.py"


class Contestant(NamedTuple):
    """A system with its settings.

    Attributes:
      label: name with settings, as given on the command line: `sb3:threads=1`.
      name: key of `PEERS`.
      settings: keyword arguments of the driver that differ from the defaults. For gunreal, `flags` are training flags.
      python: the interpreter.
    """

    label: str
    name: str
    settings: dict[str, Any]
    python: str

    @property
    def peer(self) -> Peer:
        """The system."""
        return PEERS[self.name]

    def command(self) -> list[str]:
        """Returns the command that imports the system. Further options make it train."""
        return [self.python, str(PROGRAM), self.name, "--settings", json.dumps(self.settings)]


def add_options(parser: Any) -> None:
    """Adds the options that select the systems, and lists the systems in the epilog."""
    lines = [f"  {name:<14} {peer.title}; settings: {describe_settings(peer)}" for name, peer in PEERS.items()]
    parser.epilog = "systems:\n" + "\n".join(lines)
    parser.add_argument(
        "--peers", default="", metavar="A,B", help="comma-separated systems, such as sb3:envs=16 (default: all)"
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="interpreter of a system, such as sb3 (default: this interpreter)",
    )


def parse(labels: str, pythons: Sequence[str], rest: Sequence[str]) -> list[Contestant]:
    """Returns the systems to compare.

    Args:
      labels: comma-separated systems with settings. An empty string stands for all systems.
      pythons: interpreters as NAME=PATH.
      rest: training flags for all gunreal systems.

    Raises:
      ConfigError: a system, a setting or an interpreter is invalid.
    """
    found = dict(_interpreter(text) for text in pythons)
    chosen = labels.split(",") if labels else list(PEERS)
    if twice := [label for label in chosen if chosen.count(label) > 1]:
        raise ConfigError(f"{twice[0]} is listed twice; remove one")
    return [_contestant(label, found, rest) for label in chosen]


def describe_settings(peer: Peer) -> str:
    """Describes the settings of a system and their defaults in words."""
    if peer.is_ours:
        return "any training flag"
    return ", ".join(f"{key}={value:d}" for key, value in settings(peer.drive).items())


def _known(name: str) -> str:
    if name not in PEERS:
        hint = close_match(name, PEERS) or f"; available: {', '.join(PEERS)}"
        raise ConfigError(f"unknown system {name!r}{hint}")
    return name


def _interpreter(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    python = shutil.which(os.path.expanduser(path))
    if python is None:
        raise ConfigError(f"--python {text}: interpreter not found; use --python {name}=/path/bin/python")
    return _known(name), python


def _contestant(label: str, pythons: Mapping[str, str], rest: Sequence[str]) -> Contestant:
    name, *words = label.split(":")
    peer = PEERS[_known(name)]
    if peer.flags is not None:
        flags = [*peer.flags, *rest, *(f"--{word}" for word in words)]
        _, extras = from_flags([name, *flags])  # raises ConfigError before anything starts
        if extras.resume:  # it would take over the settings of that run
            raise ConfigError("--resume can't be used here; leave it out, and give the settings as flags")
        chosen: dict[str, Any] = {"flags": flags}
    else:
        chosen, default = {}, settings(peer.drive)
        for word in words:
            key, _, value = word.partition("=")
            try:
                chosen[key] = type(default[key])(int(value))
            except (KeyError, ValueError):
                hint = f"its settings are whole numbers: {describe_settings(peer)}"
                raise ConfigError(f"{label}: invalid setting {word!r}; {hint}") from None
    return Contestant(label, name, chosen, pythons.get(name, sys.executable))


def describe(contestant: Contestant) -> dict[str, Any]:
    """Returns the `versions` of the system's packages and all its `settings`.

    Raises:
      Failed: the system can't be imported. The message is the reason.
    """
    probe = subprocess.run(contestant.command(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if probe.returncode:
        raise Failed((probe.stderr or probe.stdout).strip().rpartition("\n")[2] or f"exit code {probe.returncode}")
    try:
        versions = json.loads(probe.stdout.strip().rpartition("\n")[2])
    except ValueError:
        raise Failed(f"{contestant.python} does not answer like a Python interpreter; check --python") from None
    default = {} if contestant.peer.is_ours else settings(contestant.peer.drive)
    return {"versions": versions, "settings": default | contestant.settings}


def absence(contestant: Contestant, error: Failed) -> str:
    """Explains why a system can't be imported, and how to install it."""
    words = f"{error}; {contestant.peer.install}"
    if contestant.python == sys.executable and not contestant.peer.is_ours:
        words += f", and pass --python {contestant.name}=PATH if that is another interpreter"
    return words
