"""The library for a GPU is compiled and loaded, and finds that there is none. `tools/gpu.py` runs it on a GPU."""

import ctypes
import shutil
import subprocess

import pytest
from gunreal_emulator import build

# Code for a virtual architecture with few optimizations takes half of the time of that for a GPU.
FAST = (
    "-std=c++17",
    "-O0",
    "-Xcicc",
    "-O1",
    "-arch=compute_90",
    "-shared",
    "-Xcompiler",
    "-fPIC",
    "-Werror=all-warnings",
)


@pytest.mark.skipif(not build.find_nvcc(), reason="nvcc is not installed")
def test_the_library_compiles_without_a_warning_and_finds_no_gpu(tmp_path):
    jax = pytest.importorskip("jax")
    command = [build.find_nvcc(), *FAST, "-isystem", jax.ffi.include_dir(), "-o", tmp_path / "cuda.so"]
    done = subprocess.run([*command, build.SOURCE / "ffi.cu"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    library = ctypes.CDLL(str(tmp_path / "cuda.so"))
    assert all(hasattr(library, f"atari_{name}") for name in ("init", "observe", "step"))
    if not shutil.which("nvidia-smi"):
        assert library.atari_occupancy(*[ctypes.byref(ctypes.c_int()) for _ in range(4)]) != 0


@pytest.mark.skipif(not build.find_nvcc(), reason="nvcc is not installed")
def test_tables_have_their_values_on_a_gpu(tmp_path):
    """nvcc leaves static objects with a constructor at zero, although it is constexpr."""
    command = [build.find_nvcc(), "-std=c++17", "-O1", "-arch=compute_90", "-ptx", "-o", tmp_path / "kernel.ptx"]
    subprocess.run([*command, build.SOURCE / "kernel.cu"], capture_output=True, check=True)
    tables = [line for line in (tmp_path / "kernel.ptx").read_text().splitlines() if line.startswith(".global")]
    assert len(tables) == 2 and all("] = {" in line for line in tables), tables


def test_the_compiler_is_told_the_gpu_and_the_library_is_cached(tmp_path, monkeypatch):
    script = tmp_path / "nvcc"
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/log\nwhile [ $1 != -o ]; do shift; done\necho made > $2\n')
    script.chmod(0o755)
    monkeypatch.setenv("CUDACXX", str(script))
    monkeypatch.setenv("GUNREAL_CACHE", str(tmp_path / "cache"))
    first = build.cached("cuda", "ffi.cu", ("-flag",), "1", cuda="sm_90")
    assert build.cached("cuda", "ffi.cu", ("-flag",), "1", cuda="sm_90") == first and first.read_text() == "made\n"
    assert build.cached("cuda", "ffi.cu", ("-flag",), "1", cuda="sm_80") != first
    lines = (tmp_path / "log").read_text().splitlines()
    assert ["-arch=sm_90" in line and "-flag" in line for line in lines] == [True, False]
