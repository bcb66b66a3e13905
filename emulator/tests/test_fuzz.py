"""Random ROM bytes and random actions under AddressSanitizer and UndefinedBehaviorSanitizer."""

import subprocess

import pytest
from gunreal_emulator import EmulatorUnavailable
from gunreal_emulator.build import compile_library


def test_no_rom_reads_or_writes_outside(tmp_path):
    flags = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
    program = tmp_path / "fuzz"
    try:
        compile_library(program, flags, source="fuzz.cpp", shared=False)
    except EmulatorUnavailable as error:
        pytest.skip(f"no sanitizers here: {error}")
    done = subprocess.run([str(program), "48", "30"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
