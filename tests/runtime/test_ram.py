"""Memory limits from made-up and real cgroups, and what processes really hold."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gunreal.runtime import ram

MB = 2**20
CGROUP, V1, V2 = "proc/self/cgroup", "sys/fs/cgroup/memory", "sys/fs/cgroup"
NO_LIMIT_V1 = "9223372036854771712\n"
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def write(root: Path, files: dict[str, str]) -> Path:
    """Makes a tree of small files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({CGROUP: "0::/a/b\n", f"{V2}/a/b/memory.max": "max\n", f"{V2}/a/memory.max": "5000\n"}, 5000),
        ({CGROUP: "0::/a/b\n", f"{V2}/a/b/memory.max": "4000\n", f"{V2}/a/memory.max": "5000\n"}, 4000),
        ({CGROUP: "0::/the/hosts/path\n", f"{V2}/memory.max": "3000\n"}, 3000),  # inside a container
        (
            {
                CGROUP: "9:cpu,cpuacct:/\n4:memory:/job/step\n0::/\n",
                f"{V1}/job/step/memory.limit_in_bytes": NO_LIMIT_V1,
                f"{V1}/job/memory.limit_in_bytes": "2000\n",
                f"{V1}/memory.limit_in_bytes": NO_LIMIT_V1,
            },
            2000,
        ),
        ({CGROUP: "0::/\n", f"{V2}/memory.max": "max\n"}, None),
        ({CGROUP: "4:memory:/\n", f"{V1}/memory.limit_in_bytes": NO_LIMIT_V1}, None),
        ({}, None),  # not Linux
    ],
)
def test_limit_is_the_tightest_of_the_cgroups_and_the_ram(tmp_path: Path, files: dict[str, str], expected: int | None):
    assert ram.limit(write(tmp_path, files)) == (expected or psutil.virtual_memory().total)


def rollup(pss_kb: int, shmem_kb: int) -> str:
    """The lines of `smaps_rollup` that matter, and its first one."""
    head = "563c70472000-7fff1d30b000 ---p 00000000 00:00 0                          [rollup]\n"
    return f"{head}Rss:  {10 * pss_kb} kB\nPss:  {pss_kb} kB\nPss_Shmem:  {shmem_kb} kB\n"


def test_in_use_sums_proportional_set_sizes(tmp_path: Path):
    """Processes that are gone use nothing."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    write(tmp_path, {"11/smaps_rollup": rollup(300, 200), "12/smaps_rollup": rollup(50, 0)})
    assert ram.in_use([11, 12, gone.pid], tmp_path) == 350 * 1024
    assert ram.own(11, tmp_path) == 100 * 1024
    assert ram.own(gone.pid) == 0


@linux
def test_a_zombie_process_uses_no_memory():
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert ram.in_use([zombie.pid]) == 0
    finally:
        zombie.wait()


def test_without_smaps_rollup_the_shared_part_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sizes = {11: (300, 200), 12: (250, 150), 13: (40, 0)}  # rss, shared

    class Process:
        def __init__(self, pid: int):
            self.pid = pid

        def memory_info(self) -> object:
            rss, shared = sizes[self.pid]
            return type("Memory", (), {"rss": rss, "shared": shared})

    monkeypatch.setattr(psutil, "Process", Process)
    assert ram.in_use([11, 12, 13], tmp_path) == 100 + 100 + 40 + 200
    assert ram.own(12, tmp_path) == 100


@pytest.fixture
def file() -> Iterator[int]:
    """File descriptor of 20 MB of shared memory of which nothing is written yet. This process does not map it."""
    fd = os.memfd_create("test")
    os.ftruncate(fd, 20 * MB)
    yield fd
    os.close(fd)


@linux
def test_shared_memory_that_is_not_written(file: int):
    assert ram.unwritten([file, file]) == 40 * MB
    os.pwrite(file, bytes(5 * MB), 0)
    assert ram.unwritten([file]) == 15 * MB
    os.pwrite(file, bytes(20 * MB), 0)
    assert ram.unwritten([file]) == 0
