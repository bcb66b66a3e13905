"""The packages: a wheel plays without a compiler, and the source package has the C++ source."""

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from gunreal_emulator import build

ROOT = Path(__file__).parents[1]
PIP = [sys.executable, "-m", "pip", "install", "-q"]
PLAY = """
from gunreal_emulator import VectorAtari, build
env = VectorAtari("pong", 2)
env.reset(seed=1)
for _ in range(20):
    observation, *_ = env.step(env.action_space.sample())
assert observation.shape == (2, 1, 84, 84) and observation.any()
print(build.library_path())
"""


@pytest.mark.builds
def test_a_wheel_plays_without_a_compiler(tmp_path):
    pytest.importorskip("build")
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    done = subprocess.run([*PIP, "--target", tmp_path / "tools", *needs], capture_output=True, text=True)
    if "Could not find a version" in done.stderr:
        pytest.skip("no package index can be reached")
    fast = tmp_path / "fast-compiler"  # the library's speed does not matter here
    fast.write_text(f'#!/bin/sh\nexec {build.find_compiler()} "$@" -O0\n')
    fast.chmod(0o755)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "tools"), "CXX": str(fast)}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (sdist,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert all(any(name.endswith(f"emulator/{file}") for name in names) for file in ("core/tia.h", "games.toml"))
    assert "-py3-none-linux" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".so")]
        libraries = [archive.read(name) for name in names]
    assert all(name.startswith("gunreal_emulator/lib/") for name in names)
    assert len(libraries) == len(build.processors())
    assert not any(name in library for library in libraries for name in (b"libstdc++.so", b"libgcc_s.so"))

    site = tmp_path / "site"
    subprocess.run([*PIP, "--no-deps", "--target", site, wheel], check=True)
    environment = {k: v for k, v in os.environ.items() if k != "CXX"}
    environment |= {"PYTHONPATH": str(site), "PATH": "", "GUNREAL_CACHE": str(tmp_path / "cache")}
    out = subprocess.run([sys.executable, "-c", PLAY], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr[-2000:]
    assert Path(out.stdout.strip()).parent == site / "gunreal_emulator" / "lib"
    assert not (tmp_path / "cache").exists()
