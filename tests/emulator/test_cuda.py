"""The source compiles for a GPU. Nothing is run on one."""

import shutil
import subprocess

import pytest

from gunreal.emulator.build import SOURCE


@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not installed")
def test_the_kernel_compiles(tmp_path):
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-Werror=all-warnings", "-cubin", "-o", tmp_path / "kernel.cubin"]
    done = subprocess.run([*command, SOURCE / "kernel.cu"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert b"agent_steps" in (tmp_path / "kernel.cubin").read_bytes()
