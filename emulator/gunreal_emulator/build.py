"""Compiles the emulator with g++ at its first use, and caches the library by the hash of its source.

A wheel brings the compiled library. On x86-64 it brings two: one for every processor, and a faster one for those with
the instructions of `_NEWER`. A library that is compiled on this machine is of the kind that its processor runs.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parent / "core"
FLAGS = ("-std=c++17", "-O3", "-pthread", "-fno-math-errno", "-ffp-contract=off", "-fno-gcse")
SHARED = ("-fPIC", "-shared")
CUDA_FLAGS = ("-std=c++17", "-O3", "-shared", "-Xcompiler", "-fPIC")
CPUINFO = Path("/proc/cpuinfo")
_NEWER = ("-march=haswell",)  # the instructions of x86-64-v3, by a name that all compilers know
_FEATURES = {"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}  # their names in /proc/cpuinfo


class EmulatorUnavailable(RuntimeError):
    """The emulator can't be compiled on this machine. The message is one line that names the fix."""


def source_hash(*others: str) -> str:
    """Returns 16 hexadecimal digits that depend on the source, the platform, the compiler flags and `others`."""
    digest = hashlib.sha256(" ".join((sysconfig.get_platform(), *FLAGS, *SHARED, *others)).encode())
    for path in sorted(SOURCE.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Returns the folder of compiled libraries: `GUNREAL_CACHE`, `XDG_CACHE_HOME`/gunreal or ~/.cache/gunreal."""
    if folder := os.environ.get("GUNREAL_CACHE"):
        return Path(folder)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gunreal"
    except RuntimeError:
        raise EmulatorUnavailable("there is no home folder for the compiled emulator; set GUNREAL_CACHE") from None


def library_name(processor: tuple[str, ...]) -> str:
    """Returns the file name of the library for the processors of these compiler flags."""
    return f"libatari-{source_hash(*processor)}.so"


def processors() -> tuple[tuple[str, ...], ...]:
    """Returns the compiler flags for each library of a wheel: for all processors of its kind, and for newer ones."""
    return ((), _NEWER) if sysconfig.get_platform() == "linux-x86_64" else ((),)


def processor_flags() -> tuple[str, ...]:
    """Returns the compiler flags for the processor of this machine, one of `processors`."""
    if _NEWER not in processors():  # a container of another platform sees the flags of the machine that emulates it
        return ()
    try:
        text = CPUINFO.read_text()
    except OSError:
        return ()
    found = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    return _NEWER if set(found) >= _FEATURES else ()


def library_path() -> Path:
    """Returns the path of the library, and compiles it first if it does not exist.

    That of the wheel is preferred. Several processes may call this at the same time. Each compiles to a file of its own
    and renames the result.

    Raises:
      EmulatorUnavailable: there is no compiler, or the compiler failed.
    """
    name = library_name(processor_flags())
    if (of_wheel := Path(__file__).parent / "lib" / name).exists():
        return of_wheel
    path = cache_folder() / name
    return path if os.path.exists(path) else compile_library(path)  # Path.exists raises in a folder of another user


def cached(name: str, source: str, flags: tuple[str, ...] = (), version: str = "", cuda: str = "") -> Path:
    """Returns the path of a library of another source file, and compiles it first if it does not exist.

    Args:
      name: beginning of the library's file name.
      source: file name in `SOURCE`.
      flags: further flags of the compiler.
      version: version of what the source file includes from outside.
      cuda: architecture of the GPU, such as "sm_90", to compile with nvcc instead of the C++ compiler.

    Raises:
      EmulatorUnavailable: as `library_path` does.
    """
    used = (*CUDA_FLAGS, cuda) if cuda else processor_flags()
    path = cache_folder() / f"{name}-{source_hash(version, *used)}.so"
    if os.path.exists(path):
        return path
    if not cuda:
        return compile_library(path, flags, source)
    if not (nvcc := find_nvcc()):
        raise EmulatorUnavailable("the emulator on a GPU needs nvcc; install the CUDA toolkit, or use the CPU")
    fix = f"use a CUDA toolkit that knows {cuda} (CUDACXX names its nvcc), or use the CPU"
    return _compile(path, [nvcc, *CUDA_FLAGS, f"-arch={cuda}", *flags], source, fix)


def find_nvcc() -> str | None:
    """Returns the CUDA compiler: `CUDACXX` or nvcc, from the path or /usr/local/cuda. None if there is none."""
    usual = f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin"
    return os.environ.get("CUDACXX") or shutil.which("nvcc") or shutil.which("nvcc", path=usual)


def find_compiler() -> str | None:
    """Returns the command of the C++ compiler: `CXX`, g++ or c++. None if there is none."""
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")


def compile_library(
    path: Path,
    extra_flags: tuple[str, ...] = (),
    source: str = "atari.cpp",
    shared: bool = True,
    processor: tuple[str, ...] | None = None,
) -> Path:
    """Compiles a source file to a library or a program. Raises EmulatorUnavailable as `library_path` does.

    Without `processor`, one of `processors`, it is compiled for the processor of this machine.
    """
    compiler = find_compiler()
    if not compiler:
        raise EmulatorUnavailable("the emulator needs a C++ compiler; install g++, or use ale-py")
    flags = [*FLAGS, *(SHARED if shared else ()), *(processor_flags() if processor is None else processor)]
    fix = "set CXX to another compiler, or use ale-py"
    return _compile(path, [*shlex.split(compiler), *flags, *extra_flags], source, fix)


def _compile(path: Path, command: list[str], source: str, fix: str) -> Path:
    """Runs a compiler. The result is written to a temporary file and renamed, so that no process sees a part of it.

    Errors end with `fix`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    except OSError as error:
        raise EmulatorUnavailable(f"can't write to {path.parent} ({error}); set GUNREAL_CACHE") from None
    os.close(handle)
    compiler = command[0]
    try:
        done = subprocess.run([*command, "-o", temporary, str(SOURCE / source)], capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            first = next((line for line in lines if "error" in line or "fatal" in line), lines[-1])[:200]
            raise EmulatorUnavailable(f"{compiler} can't compile the emulator: {first}; {fix}")
        os.chmod(temporary, 0o755)
        os.replace(temporary, path)
    except OSError as error:
        raise EmulatorUnavailable(f"can't run the compiler {compiler} ({error}); {fix}") from None
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path


def opened(path: Path) -> ctypes.CDLL:
    """Loads a library. Raises EmulatorUnavailable if that fails, as for a damaged file."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise EmulatorUnavailable(f"can't load {path} ({error}); delete it, or set GUNREAL_CACHE") from None


@functools.cache
def library() -> ctypes.CDLL:
    """Loads the library and declares its functions. Raises EmulatorUnavailable as `library_path` does."""
    lib = opened(library_path())
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    for name, result, *arguments in (
        ("player_size", integer),
        ("player_offset", integer, integer),
        ("game_new", pointer, pointer),
        ("game_free", None, pointer),
        ("evaluate", integer, pointer, pointer, pointer),
        ("console_new", pointer, pointer),
        ("console_free", None, pointer),
        ("console_reset", None, pointer),
        ("console_start", None, pointer),
        ("console_act", integer, pointer, integer, integer),
        ("console_play", integer, pointer, pointer, integer, integer, pointer, integer, pointer),
        ("console_over", integer, pointer),
        ("console_lives", integer, pointer),
        ("console_frames", integer, pointer),
        ("console_whole", integer, pointer),
        ("console_ram", pointer, pointer),
        ("console_player", pointer, pointer),
        ("console_screen", pointer, pointer),
        ("vector_new", pointer, pointer, pointer, pointer, integer, integer),
        ("vector_free", None, pointer),
        ("vector_send", None, pointer, pointer, pointer, pointer, pointer),
        ("vector_recv", None, pointer),
        ("vector_player", pointer, pointer, integer),
        ("vector_screens", pointer, pointer, integer),
        ("vector_screens_size", ctypes.c_int64, pointer),
        ("pool_new", pointer, pointer, pointer, pointer, integer),
        ("pool_free", None, pointer),
        ("pool_reset", None, pointer, pointer, pointer, integer),
        ("pool_report", None, pointer, pointer, integer),
        ("pool_send", None, pointer, pointer, pointer, integer),
        ("pool_recv", None, pointer, pointer),
        ("pack", ctypes.c_int64, pointer, integer, pointer, pointer, pointer, pointer, pointer),
    ):
        function = getattr(lib, f"atari_{name}")
        function.restype, function.argtypes = result, arguments
    return lib
