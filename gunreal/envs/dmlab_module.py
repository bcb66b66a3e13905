"""Loading of the module `deepmind_lab`, and what keeps it from disturbing the process that it is loaded into."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

from gunreal.config.process import python, told
from gunreal.config.schema import Config, ConfigError

_ENGINES = {"software": "_sw", "hardware": "_hw"}  # endings of the names of Lab's own libraries
_SPARE_FILES = 64  # descriptors left for everything else in the process
_MISSING = {  # modules that Lab's package imports, which newer versions of Python do not have
    "imp": "which Python 3.12 and later lack; use Python 3.11",
    "pkg_resources": "which Python 3.12 and later lack; run pip install 'setuptools<81'",
}
# Resets the environment once. The pickled configuration arrives on standard input.
_TRIAL = """config = pickle.load(sys.stdin.buffer)
from gunreal.config.schema import ConfigError
from gunreal.envs.dmlab import open_level
try:
    env = open_level(config)
    env.reset(seed=config.seed)
    env.close()
except ConfigError as error:
    sys.exit(str(error))"""


def load_module(level: str) -> Any:
    """Imports `deepmind_lab`. Raises ConfigError if it is not installed or cannot be loaded."""
    try:
        return importlib.import_module("deepmind_lab")
    except ModuleNotFoundError as error:
        if error.name != "deepmind_lab":
            remedy = _MISSING.get(error.name or "", "which is missing; install it")
            raise ConfigError(f"deepmind_lab needs the module {error.name}, {remedy}") from None
    except ImportError as error:
        raise ConfigError(f"cannot load the installed deepmind_lab: {error}") from None
    maze = "NavMazeRandomGoal" if "random_goal" in level else "NavMazeStatic"
    twin = "SeekAvoid" if "seekavoid" in level else maze
    raise ConfigError(
        f"dmlab/{level} needs the module deepmind_lab, which is not on PyPI; build and install it from "
        f'https://github.com/google-deepmind/lab, or run pip install "gunreal[vizdoom]" and use --env gunreal/{twin}-v0'
    )


def load_engine(runfiles: str, renderer: str) -> None:
    """Loads Lab's engine with symbols of its own, before Lab loads it.

    TensorFlow makes its LLVM visible to all libraries that are loaded later. Without this, the software renderer uses
    that LLVM instead of its own, and the process crashes. If the library is not found, Lab loads it as it likes.
    """
    folder = Path(runfiles)
    for found in sorted({*folder.glob("libdmlab*.so"), *folder.parent.glob("libdmlab*.so")}):
        if found.stem.endswith(_ENGINES.get(renderer, "")):
            with contextlib.suppress(OSError):
                ctypes.CDLL(str(found), os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)


def check_open_files(level: str) -> None:
    """Raises the soft limit of open files. A closed instance of Lab leaves four of them open.

    Lab ends the process without a message when the limit is reached.

    Raises:
      ConfigError: the limit will be reached soon.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    used = len(os.listdir("/proc/self/fd"))
    if hard != resource.RLIM_INFINITY and used + _SPARE_FILES > hard:
        raise ConfigError(
            f"dmlab/{level}: every episode with exact=true leaves four files open, now {used} of at most {hard}; "
            "raise the limit with ulimit -Hn, or leave out exact"
        )


def try_reset(config: Config) -> None:
    """Resets the environment once in a process of its own.

    Some errors of Lab show only at a reset, such as missing maps, and some of them end the process.

    Raises:
      ConfigError: the reset failed. The message is one line with the reason.
    """
    done = subprocess.run(python(_TRIAL), input=told(config), capture_output=True, check=False)
    if not done.returncode:
        return
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    reason = lines[-1] if lines else f"exit code {done.returncode}"
    if done.returncode < 0:
        reason = f"Lab was ended by {signal.Signals(-done.returncode).name}{f': {reason}' if lines else ''}"
    prefix = "" if reason.startswith(config.env) else f"{config.env} cannot start an episode: "
    raise ConfigError(prefix + reason)
