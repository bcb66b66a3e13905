"""`gunreal doctor`: what is installed on this machine, what works, and how fast it trains, as a page for a report.

Each part is one line, also if it fails. A part that loads libraries of others runs in a process of its own, which they
may end or keep waiting.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import platform
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from gunreal.config.arguments import Arguments
from gunreal.config.packages import is_installed
from gunreal.config.plugins import place
from gunreal.config.process import python, told
from gunreal.config.schema import Config, ConfigError
from gunreal.config.version import VERSION

_ABOUT = """\
Reports what is installed on this machine, what works, and how fast it trains. Paste the page into a report of a
problem. A part that does not work is one line with FAILED.
"""
_TRAINED = Config(tasks=("pc", "vr", "rp"))
_EXPECTED = "788 to 925 on two idle cores of an AMD EPYC without a GPU"  # docs/results/speed.md, the same settings
_FAILED = "FAILED"
_PATIENCE = 120.0  # seconds for a part in a process of its own
_DEVELOPMENT = ("dev", "docs")  # extras that no feature needs


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 if all parts work, otherwise 1. Raises ConfigError if the command line is invalid."""
    parser = Arguments(argv[0], _ABOUT)
    about = "length of the measurement of the speed, without the start of the training; 0 leaves it out (default: 10)"
    parser.add_argument("--seconds", type=float, default=10.0, help=about)
    seconds = parser.parse_args(argv[1:]).seconds
    if not 0 <= seconds <= 3600:
        raise ConfigError(f"--seconds is {seconds:g}, but must be from 0 to 3600")
    failures = 0
    for title, text in _page(seconds):
        print(f"{title:<12} {text}", flush=True)
        failures += _FAILED in text
    return min(failures, 1)


def _page(seconds: float) -> Iterator[tuple[str, str]]:
    """The title and the text of each part."""
    yield "gunreal", VERSION
    for part in (system, memory, limits, packages):
        yield part.__name__, _tried(part)
    with contextlib.suppress(metadata.PackageNotFoundError):
        for extra in metadata.metadata("gunreal").get_all("Provides-Extra") or ():
            if extra not in _DEVELOPMENT:
                yield f"[{extra}]", _tried(packages, extra)
    yield "compilers", _tried(compilers)
    yield "GPU", _tried(gpu)
    for name in ("tensorflow", "jax"):
        yield name, _apart(backend, name) if is_installed(name) else "not installed"
    yield "Atari", _apart(atari)
    if seconds:
        yield "speed", _apart(speed, _TRAINED, seconds, patience=_PATIENCE + seconds)
        yield "expected", _EXPECTED


def _tried(part: Callable[..., str], *args: Any) -> str:
    """What a part returns, or how it failed."""
    try:
        return part(*args)
    except Exception as error:  # a broken installation can raise anything
        return f"{_FAILED}: {place(error)}"


# Parts in this process.


def system() -> str:
    """Python, the operating system, the cores that this process may use, and how busy they are."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    cores = f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores of {model}, load {os.getloadavg()[0]:.1f}"
    return f"Python {platform.python_version()}, {platform.platform()}, {cores}"


def memory() -> str:
    """The memory that a run may use, and the space for files in memory and on disks."""
    import psutil

    from gunreal.runtime import ram

    found = {"limit": ram.limit(), "available": psutil.virtual_memory().available}
    places = {"/dev/shm": "/dev/shm", "temporary files": tempfile.gettempdir(), "this folder": "."}
    found |= {name: shutil.disk_usage(path).free for name, path in places.items() if os.path.isdir(path)}
    return ", ".join(f"{name} {count / 2**30:,.1f} GiB" for name, count in found.items())


def limits() -> str:
    """The soft and hard limits of open files and processes."""
    kinds = {"open files": resource.RLIMIT_NOFILE, "processes": resource.RLIMIT_NPROC}
    counts = {name: ["unlimited" if x < 0 else f"{x:,}" for x in resource.getrlimit(kinds[name])] for name in kinds}
    return ", ".join(f"{name} {soft} (at most {hard})" for name, (soft, hard) in counts.items())


def packages(extra: str = "") -> str:
    """The packages that gunreal, or one of its extras, needs, with their versions."""
    return ", ".join(_package(needed) for needed in _needed("gunreal", extra))


def _needed(name: str, extra: str) -> Iterator[Any]:
    """The requirements of a package without extras, or those that one of its extras adds."""
    from packaging.requirements import Requirement

    for needed in map(Requirement, metadata.requires(name) or ()):
        always, with_extra = (not needed.marker or needed.marker.evaluate({"extra": x}) for x in ("", extra))
        if with_extra and not (extra and always):
            yield needed


def _package(needed: Any) -> str:
    """The name and version of a required package, and what is wrong with it."""
    try:
        version = metadata.version(needed.name)
    except metadata.PackageNotFoundError:
        return f"{needed.name} missing"
    text = f"{needed.name} {version}"
    if not needed.specifier.contains(version, prereleases=True):
        text += f" ({_FAILED}: needs {needed.specifier})"
    for extra in sorted(needed.extras):
        missing = sum(_package(part).endswith(" missing") for part in _needed(needed.name, extra))
        text += f" ({missing} packages of [{extra}] missing)" if missing else f" with [{extra}]"
    return text


def compilers() -> str:
    """The compilers that the emulator may need."""
    from gunreal_emulator.build import find_compiler, find_nvcc

    found = {"C++": find_compiler(), "CUDA": find_nvcc()}
    return "; ".join(f"{kind}: {_asked(name, '--version') if name else 'none'}" for kind, name in found.items())


def gpu() -> str:
    """The GPUs that NVIDIA's driver lists."""
    if not shutil.which("nvidia-smi"):
        return "none (there is no nvidia-smi)"
    return _asked("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")


def _asked(command: str, *options: str) -> str:
    """What a program says about itself: the line with its release, or the first one."""
    done = subprocess.run([*shlex.split(command), *options], capture_output=True, text=True, timeout=_PATIENCE)
    lines = (done.stdout or done.stderr).strip().splitlines() or [f"exit code {done.returncode}"]
    return next((line for line in lines if ", release " in line), lines[0])


# Parts in processes of their own.


def backend(name: str) -> str:
    """The devices of a backend, after a computation."""
    from gunreal.learning import devices

    devices.select(name)
    import keras

    total = float(keras.ops.sum(keras.ops.ones((8, 8)) @ keras.ops.ones((8, 8))))
    if total != 512:
        raise ArithmeticError(f"a sum is {total:g} instead of 512")
    return f"Keras {keras.__version__} on {', '.join(map(str, keras.distribution.list_devices()))}"


def atari() -> str:
    """The emulator that Atari games get, after a step."""
    import numpy as np

    from gunreal.envs.atari import AtariEnv, why_ale

    env = AtariEnv(_TRAINED, 1, ())
    env.step(np.zeros(1, np.int32), np.ones(1, bool), np.ones(1, np.int64))
    reason = why_ale(_TRAINED)
    return f"{_TRAINED.env}, emulator {env.emulator}" + (f" ({reason})" if reason else "")


def speed(config: Config, seconds: float) -> str:
    """The rate of a training of so many seconds, without its start. Nothing of it is kept."""
    from gunreal.train import train, with_backend

    lines: list[dict[str, Any]] = []

    def watch(line: dict[str, Any]) -> bool:
        lines.extend([line] if line["updates"] else ())
        return bool(lines) and line["seconds"] - lines[0]["seconds"] >= seconds

    with tempfile.TemporaryDirectory(prefix="gunreal-") as folder:
        config = dataclasses.replace(config, logdir=folder, name="doctor", metrics_seconds=0.5)
        train(with_backend(config, ()), show=False, on_metrics=watch)
    steps, taken = (lines[-1][name] - lines[0][name] for name in ("step", "seconds"))
    return f"{steps / taken:,.0f} agent steps per second on {config.env} with {','.join(config.tasks) or 'no tasks'}"


def _apart(part: Callable[..., str], *args: Any, patience: float = _PATIENCE) -> str:
    """What a part returns in a process of its own, or how it failed."""
    command, given = python("from gunreal.doctor import answer\nanswer()"), told((part.__name__, args))
    with tempfile.TemporaryDirectory(prefix="gunreal-", ignore_cleanup_errors=True) as folder:
        environment = os.environ | {"TMPDIR": folder}  # for what a process that is killed leaves behind
        try:
            done = subprocess.run(command, input=given, capture_output=True, timeout=patience, env=environment)
        except subprocess.TimeoutExpired:
            return f"{_FAILED}: no answer within {patience:g} s; if the load is high, try again later"
    code = done.returncode
    printed = (done.stderr if code else done.stdout).decode(errors="replace").strip().splitlines()[-1:]
    if code or not printed:
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return ": ".join([_FAILED, how, *printed])
    return printed[0]


def answer() -> None:
    """Entry point of the process of a part. Its name and arguments arrive pickled on standard input."""
    name, args = pickle.load(sys.stdin.buffer)
    print(f"\n{_tried(globals()[name], *args)}", flush=True)
    os._exit(0)  # a regular exit takes 2 s more to tear down TensorFlow
