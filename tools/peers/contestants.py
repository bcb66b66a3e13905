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


def add_options(parser: Any, names: Sequence[str], option: str, driver: str) -> None:
    """Adds the options that select the systems, and lists the systems in the epilog.

    Args:
      parser: the parser.
      names: the available systems.
      option: the name of the option that lists them.
      driver: the field of `Peer` that trains them: "drive" or "learn".
    """
    lines = [f"  {name:<14} {PEERS[name].title}; settings: {describe_settings(name, driver)}" for name in names]
    parser.epilog = "systems:\n" + "\n".join(lines)
    parser.add_argument(
        f"--{option}", default="", metavar="A,B", help="comma-separated systems, such as sb3:envs=16 (default: all)"
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="interpreter of a system, or of all systems with this prefix, such as sb3 (default: this interpreter)",
    )


def parse(
    labels: str, pythons: Sequence[str], rest: Sequence[str], names: Sequence[str], driver: str
) -> list[Contestant]:
    """Returns the systems to compare.

    Args:
      labels: comma-separated systems with settings. An empty string stands for all of `names`.
      pythons: interpreters as NAME=PATH.
      rest: training flags for all gunreal systems.
      names: the available systems.
      driver: the field of `Peer` that trains them: "drive" or "learn".

    Raises:
      ConfigError: a system, a setting or an interpreter is invalid.
    """
    found = dict(_interpreter(text, names) for text in pythons)
    chosen = labels.split(",") if labels else list(names)
    if twice := [label for label in chosen if chosen.count(label) > 1]:
        raise ConfigError(f"{twice[0]} is listed twice; remove one")
    return [_contestant(label, found, rest, names, driver) for label in chosen]


def describe_settings(name: str, driver: str) -> str:
    """Describes the settings of a system and their defaults in words."""
    peer = PEERS[name]
    if peer.is_ours:
        return "any training flag"
    return ", ".join(f"{key}={value:d}" for key, value in settings(getattr(peer, driver)).items())


def _family(name: str) -> str:
    return name.partition("-")[0]


def _known(name: str, names: Sequence[str]) -> str:
    if name not in names:
        hint = close_match(name, names) or f"; available: {', '.join(names)}"
        raise ConfigError(f"unknown system {name!r}{hint}")
    return name


def _interpreter(text: str, names: Sequence[str]) -> tuple[str, str]:
    name, _, path = text.partition("=")
    python = shutil.which(os.path.expanduser(path))
    if python is None:
        raise ConfigError(f"--python {text}: interpreter not found; use --python {name}=/path/bin/python")
    return _known(name, (*names, *map(_family, names))), python


def _contestant(
    label: str, pythons: Mapping[str, str], rest: Sequence[str], names: Sequence[str], driver: str
) -> Contestant:
    name, *words = label.split(":")
    peer = PEERS[_known(name, names)]
    if peer.flags is not None:
        flags = [*peer.flags, *rest, *(f"--{word}" for word in words)]
        _, extras = from_flags([name, *flags])  # raises ConfigError before anything starts
        if extras.resume:  # it would take over the settings of that run
            raise ConfigError("--resume can't be used here; leave it out, and give the settings as flags")
        chosen: dict[str, Any] = {"flags": flags}
    else:
        chosen, default = {}, settings(getattr(peer, driver))
        for word in words:
            key, _, value = word.partition("=")
            try:
                chosen[key] = type(default[key])(int(value))
            except (KeyError, ValueError):
                known = describe_settings(name, driver)
                hint = f"its settings are whole numbers: {known}" if known else f"{name} has no settings"
                raise ConfigError(f"{label}: invalid setting {word!r}; {hint}") from None
    return Contestant(label, name, chosen, pythons.get(name) or pythons.get(_family(name), sys.executable))


def describe(contestant: Contestant, driver: str) -> dict[str, Any]:
    """Returns the `versions` of the system's packages and all its `settings`.

    Args:
      contestant: the system.
      driver: the field of `Peer` that trains it.

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
    default = {} if contestant.peer.is_ours else settings(getattr(contestant.peer, driver))
    return {"versions": versions, "settings": default | contestant.settings}


def title(contestant: Contestant) -> str:
    """Returns the name of a system in tables and legends."""
    _, *words = contestant.label.split(":")
    return " ".join([contestant.peer.title, *words])


def absence(contestant: Contestant, error: Failed) -> str:
    """Explains why a system can't be imported, and how to install it."""
    words = f"{error}; {contestant.peer.install}"
    if contestant.python == sys.executable and not contestant.peer.is_ours:
        words += f", and pass --python {contestant.name}=PATH if that is another interpreter"
    return words
