"""The packages: a wheel plays without a compiler, and the source package has the C++ source."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAY = """
from gunreal.emulator import VectorAtari, build
env = VectorAtari("pong", 2)
env.reset(seed=1)
for _ in range(20):
    observation, *_ = env.step(env.action_space.sample())
assert observation.shape == (2, 1, 84, 84) and observation.any()
print(build.library_path())
"""


@pytest.mark.builds
@pytest.mark.timeout(900)
def test_a_wheel_plays_without_a_compiler(tmp_path):
    pytest.importorskip("build")
    done = subprocess.run([sys.executable, "-m", "build", "--outdir", tmp_path, ROOT], capture_output=True, text=True)
    if "Could not find a version" in done.stdout + done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (sdist,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert all(any(name.endswith(f"emulator/{file}") for name in names) for file in ("core/tia.h", "games.toml"))
    assert "-py3-none-linux" in wheel.name
    assert any("emulator/lib/libatari-" in name for name in zipfile.ZipFile(wheel).namelist())

    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    environment = {k: v for k, v in os.environ.items() if k not in ("CXX", "PYTHONPATH")}
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", wheel], check=True, env=environment)
    site = Path(subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                                        text=True).strip())  # fmt: skip
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment |= {"PATH": str(python.parent), "GUNREAL_CACHE": str(tmp_path / "cache")}
    out = subprocess.run([python, "-c", PLAY], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr[-2000:]
    assert Path(out.stdout.strip()).parent == site / "gunreal" / "emulator" / "lib"
    assert not (tmp_path / "cache").exists()
