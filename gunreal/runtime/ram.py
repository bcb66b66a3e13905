"""The memory limit of a run, and the memory that it uses. The scheduler needs both."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil


def limit(root: Path = Path("/")) -> int:
    """Number of bytes that all processes of a run together may use, unless the user sets another limit.

    This is the smallest of the RAM and the limits of this process's cgroup and its ancestors (v2 `memory.max`, v1
    `memory.limit_in_bytes`).

    Args:
      root: folder that contains `/proc` and `/sys`.
    """
    return min(_limits(root))


def in_use(pids: Iterable[int], proc: Path = Path("/proc")) -> int:
    """Number of bytes of RAM that the processes use together. Shared memory counts once. Ended processes count 0.

    The result is the sum of the proportional set sizes (`smaps_rollup`, Linux 4.14). If they are not available, it is
    the sum of the private parts plus the largest shared part, because the server maps every replay ring.
    """
    total = shared = 0
    for pid in pids:
        try:
            total += _rollup(pid, proc)["Pss"]
        except OSError:
            own, common = _resident(pid)
            total, shared = total + own, max(shared, common)
    return total + shared


def own(pid: int, proc: Path = Path("/proc")) -> int:
    """Number of bytes that one process adds to `in_use` without its shared memory. 0 if it has ended.

    For an agent process this is its interpreter and environments, without the replay rings.
    """
    try:
        rollup = _rollup(pid, proc)
    except OSError:
        return _resident(pid)[0]
    return rollup["Pss"] - rollup.get("Pss_Shmem", 0)


def unwritten(fds: Iterable[int]) -> int:
    """Number of bytes of shared memory files that have no page yet. `in_use` can still grow by this amount."""
    stats = [os.fstat(fd) for fd in fds]
    return sum(max(0, stat.st_size - 512 * stat.st_blocks) for stat in stats)


def _limits(root: Path) -> Iterator[int]:
    """The RAM, and the limits of this process's cgroup and of its ancestors.

    Inside a container, `/proc/self/cgroup` may name the host's path while `/sys/fs/cgroup` shows the container's own
    group at its top. Missing files are skipped.
    """
    yield psutil.virtual_memory().total
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, file = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, file = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = top / path.lstrip("/")
        for folder in (group, *group.parents[: len(group.parts) - len(top.parts)]):
            try:
                yield int((folder / file).read_text())
            except (OSError, ValueError):  # no such file, or "max" for no limit
                continue


def _rollup(pid: int, proc: Path) -> dict[str, int]:
    """Fields of `smaps_rollup` in bytes. Raises OSError if it cannot be read or the process has ended."""
    lines = (proc / str(pid) / "smaps_rollup").read_text().splitlines()[1:]
    if not lines:
        raise ProcessLookupError(pid)
    return {name: 1024 * int(value.split()[0]) for name, value in (line.split(":") for line in lines)}


def _resident(pid: int) -> tuple[int, int]:
    """Resident bytes of a process: private, and possibly shared. Both are 0 if it has ended."""
    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.NoSuchProcess:
        return 0, 0
    shared = getattr(memory, "shared", 0)
    return memory.rss - shared, shared
