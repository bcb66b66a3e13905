"""Loading of the module `deepmind_lab`, and what keeps it from disturbing the process that it is loaded into."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import resource
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from gunreal.config.process import python, told
from gunreal.config.schema import Config, ConfigError
from gunreal.config.values import one_line

INSTALL = "run pip install dmlab-gym && dmlab-gym build, which needs Python 3.13 and Docker or Podman"
_ENGINES = {"software": "_sw", "hardware": "_hw"}  # endings of the names of Lab's own libraries
_SPARE_FILES = 64  # descriptors left for everything else in the process
_MISSING = {  # modules that Lab's package imports, which newer versions of Python do not have
    "imp": "which Python 3.12 and later lack; use Python 3.11, or build Lab with dmlab-gym",
    "pkg_resources": "which Python 3.12 and later lack; run pip install 'setuptools<81'",
}
# Resets the environment once. The pickled configuration arrives on standard input. If it fails, the last line of
# standard output says why.
_TRIAL = """config = pickle.load(sys.stdin.buffer)
import os
from gunreal.config.schema import ConfigError
from gunreal.envs.dmlab import open_level
from gunreal.envs.dmlab_module import reason
try:
    env = open_level(config)
    env.reset(seed=config.seed)
    env.close()
except Exception as error:
    kind = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
    print(f"\\n{kind}{reason(str(error))}", flush=True)
    os._exit(os.EX_CONFIG)"""


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
        f"dmlab/{level} needs the module deepmind_lab; {INSTALL}, or "
        f'run pip install "gunreal[vizdoom]" and use --env gunreal/{twin}-v0'
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


def why_not_loaded(runfiles: str, renderer: str) -> str:
    """Why Lab cannot load the library of a renderer. Empty if the folder has none of Lab's libraries at all."""
    found = {file.name for file in Path(runfiles).glob("libdmlab*.so")}
    name = f"libdmlab_headless{_ENGINES[renderer]}.so"
    if name not in found:
        return f"this Lab was built without {name}; use another renderer" if found else ""
    try:
        ctypes.CDLL(str(Path(runfiles, name)), os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    except OSError as error:
        return f"cannot load its library: {one_line(str(error))}; install what is missing, or use another renderer"
    return f"its library {name} was loaded, but did not start"


def reason(text: str) -> str:
    """What Lab says is wrong, as one line. The level's stack traceback follows it."""
    return one_line(text.partition("stack traceback")[0])


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
    with tempfile.TemporaryDirectory(prefix="gunreal-", ignore_cleanup_errors=True) as folder:
        environment = os.environ | {"TMPDIR": folder}  # Lab may end without removing its files
        done = subprocess.run(python(_TRIAL), input=told(config), capture_output=True, check=False, env=environment)
    if not done.returncode:
        return
    if done.returncode == os.EX_CONFIG:
        why = done.stdout.decode(errors="replace").strip().rpartition("\n")[2]
    else:  # Lab has ended the process
        code = done.returncode
        why = f"Lab was ended by {signal.Signals(-code).name}" if code < 0 else f"Lab ended with exit code {code}"
        lines = done.stderr.decode(errors="replace").partition("stack traceback")[0].split("\n")
        why = ": ".join([why, *[line for line in lines if line.strip()][-1:]])
    prefix = "" if why.startswith(config.env) else f"{config.env} cannot start an episode: "
    raise ConfigError(prefix + why)
