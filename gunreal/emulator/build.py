"""Compiles the emulator with g++ at its first use, and caches the library by the hash of its source.

A wheel brings the compiled library. `python -m gunreal.emulator.build` compiles it with all instructions of this
machine's processor, and this library is preferred as long as it is in the cache.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parent / "core"
FLAGS = ("-std=c++17", "-O3", "-pthread", "-fno-math-errno", "-ffp-contract=off")
SHARED = ("-fPIC", "-shared")
CUDA_FLAGS = ("-std=c++17", "-O3", "-shared", "-Xcompiler", "-fPIC")


class EmulatorUnavailable(RuntimeError):
    """The emulator can't be compiled on this machine. The message is one line that names the fix."""


def source_hash(*others: str) -> str:
    """Returns 16 hexadecimal digits that depend on the source, the compiler flags and `others`."""
    digest = hashlib.sha256(" ".join((*FLAGS, *SHARED, *_machine_flags(), *others)).encode())
    for path in sorted(SOURCE.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Returns the folder of compiled libraries: `GUNREAL_CACHE`, `XDG_CACHE_HOME`/gunreal or ~/.cache/gunreal."""
    if folder := os.environ.get("GUNREAL_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gunreal"


def library_name(native: bool = False) -> str:
    """Returns the file name of the library, which tells the source and, with `native`, the processor."""
    if not native:
        return f"libatari-{source_hash()}.so"
    return f"libatari-{source_hash()}-{_processor_hash()}.so"


def library_path() -> Path:
    """Returns the path of the library, and compiles it first if it does not exist.

    The order is: compiled for this processor, from the wheel, compiled before. Several processes may call this at the
    same time. Each compiles to a file of its own and renames the result.

    Raises:
      EmulatorUnavailable: there is no compiler, or the compiler failed.
    """
    cache, name = cache_folder(), library_name()
    for path in (cache / library_name(native=True), Path(__file__).parent / "lib" / name, cache / name):
        if path.exists():
            return path
    return compile_library(cache / name)


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
    path = cache_folder() / f"{name}-{source_hash(version, cuda)}.so"
    if path.exists():
        return path
    if not cuda:
        return compile_library(path, flags, source)
    if not (nvcc := find_nvcc()):
        raise EmulatorUnavailable("the emulator on a GPU needs nvcc; install the CUDA toolkit, or use the CPU")
    return _compile(path, [nvcc, *CUDA_FLAGS, f"-arch={cuda}", *flags], source)


def find_nvcc() -> str | None:
    """Returns the CUDA compiler: `CUDACXX` or nvcc, from the path or /usr/local/cuda. None if there is none."""
    usual = f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin"
    return os.environ.get("CUDACXX") or shutil.which("nvcc") or shutil.which("nvcc", path=usual)


def find_compiler() -> str | None:
    """Returns the C++ compiler: `CXX`, g++ or c++. None if there is none."""
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")


def compile_library(
    path: Path, extra_flags: tuple[str, ...] = (), source: str = "atari.cpp", shared: bool = True
) -> Path:
    """Compiles a source file to a library or a program. Raises EmulatorUnavailable as `library_path` does."""
    compiler = find_compiler()
    if not compiler:
        raise EmulatorUnavailable("the emulator needs a C++ compiler; install g++, or use --emulator ale")
    return _compile(path, [compiler, *FLAGS, *(SHARED if shared else ()), *_machine_flags(), *extra_flags], source)


def _compile(path: Path, command: list[str], source: str) -> Path:
    """Runs a compiler. The result is written to a temporary file and renamed, so that no process sees a part of it."""
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
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
            raise EmulatorUnavailable(f"{compiler} can't compile the emulator: {first}; use --emulator ale")
        os.chmod(temporary, 0o755)
        os.replace(temporary, path)
    except OSError as error:
        raise EmulatorUnavailable(f"can't run the compiler {compiler} ({error}); set CXX to another one") from None
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path


@functools.cache
def library() -> ctypes.CDLL:
    """Loads the library and declares its functions. Raises EmulatorUnavailable as `library_path` does."""
    lib = ctypes.CDLL(str(library_path()))
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
        ("vector_new", pointer, pointer, pointer, pointer, integer, integer, integer),
        ("vector_free", None, pointer),
        ("vector_send", None, pointer, pointer, pointer, pointer, pointer),
        ("vector_recv", None, pointer),
        ("vector_player", pointer, pointer, integer),
        ("vector_screens", pointer, pointer, integer),
        ("vector_screens_size", ctypes.c_int64, pointer),
        ("pack", ctypes.c_int64, pointer, integer, pointer, pointer, pointer, pointer, pointer),
    ):
        function = getattr(lib, f"atari_{name}")
        function.restype, function.argtypes = result, arguments
    return lib


def _machine_flags() -> tuple[str, ...]:
    """Returns flags for instructions that every x86-64 processor of the last decade has."""
    return ("-march=x86-64-v2",) if os.uname().machine == "x86_64" else ()


def _processor_hash() -> str:
    """Returns 8 hexadecimal digits that depend on the processor's instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        text = next(line for line in lines if line.lower().startswith(("flags", "features")))
    except (OSError, StopIteration):
        text = platform.processor()
    return hashlib.sha256(text.encode()).hexdigest()[:8]


if __name__ == "__main__":
    print(compile_library(cache_folder() / library_name(native=True), ("-march=native",)))
