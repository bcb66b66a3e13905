"""A Ray cluster of several machines inside one: network namespaces, a bridge between them, and limited bandwidth.

It needs Linux and root. The first machine is this one; it runs no node. Each other machine is a raylet with a network
interface, /tmp/ray and /dev/shm of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from common.command_line import handled

from gunreal.config.schema import ConfigError

_PORT = 6411  # of the first network
_NETWORKS = 16  # that may exist at the same time
_STARTING = 600.0  # seconds until a raylet must have registered
_STORE = 256 * 2**20  # bytes of the object store of each machine
_NEEDED = 1 << 12 | 1 << 21  # CAP_NET_ADMIN and CAP_SYS_ADMIN
_MOUNTS = "mount -t tmpfs {size} none /dev/shm; mount {disk} {head}; exec {command}"
SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",  # the machines are reached by other addresses than the loopback
    "RAY_enable_pipe_based_agent_to_parent_health_check": "1",
}


def check() -> None:
    """Raises ConfigError if namespaces cannot be made."""
    able = sys.platform.startswith("linux") and all(map(shutil.which, ("ip", "tc", "unshare")))
    if able:  # in most containers, root lacks these capabilities
        (held,) = re.findall(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())
        able = not _NEEDED & ~int(held, 16)
    if not able:
        needs = "Linux, root with CAP_NET_ADMIN and CAP_SYS_ADMIN, iproute2 and util-linux"
        raise ConfigError(f"network namespaces need {needs}; leave out --mbit")


def run(*words: str) -> str:
    """Runs a command that only root may use, and returns what it prints.

    Raises:
      ConfigError: it failed, for example because root lacks a capability in a container.
    """
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        needs = "it needs root with CAP_NET_ADMIN and CAP_SYS_ADMIN"
        raise ConfigError(f"{' '.join(words)} failed: {said}; {needs}")
    return done.stdout


class Network:
    """The machines. Use `started`.

    Attributes:
      address: address of the Ray cluster, after `make`.
    """

    def __init__(self, folder: Path, disk: int = 0):
        self._folder, self._disk = folder, disk
        self.address = self._name = self._net = ""
        self._raylets: dict[int, subprocess.Popen[bytes]] = {}
        self._environment = os.environ | SETTINGS

    def _ip(self, command: str) -> None:
        run("ip", *command.split())

    def make(self) -> None:
        """Makes the bridge and starts Ray on this machine.

        Raises:
          ConfigError: there are too many networks already, or a command fails.
        """
        number = self._make_bridge()
        self._ip(f"addr add {self._net}.1/24 dev {self._name}")
        self._ip(f"link set {self._name} up")
        self.address = f"{self._net}.1:{_PORT + number}"
        self._start(0, "--head", f"--port={_PORT + number}", "--num-cpus=0", "--include-dashboard=0")

    def _make_bridge(self) -> int:
        """Makes the first bridge that does not exist, which also reserves its addresses. Returns its number."""
        for number in range(_NETWORKS):
            name = f"gunreal{number}"
            try:
                self._ip(f"link add {name} type bridge")
            except ConfigError as error:
                if "exists" not in str(error):
                    raise
            else:
                self._name, self._net = name, f"10.{77 + number}.0"
                return number
        raise ConfigError(f"there are {_NETWORKS} networks; remove those of killed runs (ip link del {name})")

    def add(self, place: int, shm: str = "512m") -> None:
        """Adds a machine. `place` counts from 1, and `shm` is the size of its shared memory."""
        inside, outside = f"{self._name}-{place}", f"{self._name}v{place}"
        if place not in self._raylets:
            self._disconnect(place)  # what a killed run has left
            self._ip(f"netns add {inside}")
            self._ip(f"link add {outside} type veth peer name eth0 netns {inside}")
            self._ip(f"link set {outside} master {self._name} up")
            self._ip(f"-n {inside} addr add {self._net}.{place + 1}/24 dev eth0")
            self._ip(f"-n {inside} link set eth0 up")
            self._ip(f"-n {inside} link set lo up")
        self._start(place, f"--address={self.address}", "--num-cpus=1", shm=shm)

    def wait(self, machines: int) -> None:
        """Waits until the machines have joined. Raises ConfigError if they do not."""
        from ray._raylet import GcsClient

        deadline = time.monotonic() + _STARTING
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception):  # the first machine is starting
                known = GcsClient(address=self.address).get_all_node_info().values()
                if sum(node.state == 0 for node in known) > machines:
                    return
            time.sleep(0.5)
        raise ConfigError(f"the machines of the network did not start within {_STARTING:g} s; try fewer")

    def _start(self, place: int, *flags: str, shm: str = "") -> None:
        folder = self._folder / str(place)
        folder.mkdir(exist_ok=True)
        own = (f"--node-ip-address={self._net}.{place + 1}", f"--object-store-memory={_STORE}", "--block")
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *own, "--disable-usage-stats", *flags]
        if place:
            disk = f"-t tmpfs -o size={self._disk}m none" if self._disk else f"--bind {folder}"
            head, command = self._folder / "0", " ".join(command)
            mounts = _MOUNTS.format(size=f"-o size={shm}", disk=disk, head=head, command=command)
            command = ["ip", "netns", "exec", f"{self._name}-{place}", "unshare", "-m", "sh", "-c", mounts]
        else:
            command.append(f"--temp-dir={folder}")
        log = open(folder / "log", "ab")  # noqa: SIM115  the process keeps it
        self._raylets[place] = subprocess.Popen(
            command, env=self._environment, stdout=log, stderr=log, start_new_session=True
        )

    def limit(self, place: int, mbit: float) -> None:
        """Limits what a machine sends and receives."""
        rule = f"root tbf rate {mbit}mbit burst 128kb latency 200ms"
        for where in (
            f"tc qdisc replace dev {self._name}v{place} {rule}",
            f"tc -n {self._name}-{place} qdisc replace dev eth0 {rule}",
        ):
            run(*where.split())

    def cut(self, place: int, is_cut: bool = True) -> None:
        """Cuts the network of a machine, or joins it again."""
        self._ip(f"link set {self._name}v{place} {'down' if is_cut else 'up'}")

    def pids(self, place: int) -> list[int]:
        """The numbers of all processes on a machine."""
        return list(map(int, run("ip", "netns", "pids", f"{self._name}-{place}").split()))

    def place(self, pid: int) -> int:
        """The machine of a process, which is on one of them."""
        return next(place for place in self._raylets if place and pid in self.pids(place))

    def disk(self, place: int) -> Path:
        """The folder of Ray on a machine, as this machine sees it."""
        return Path(f"/proc/{self._raylets[place].pid}/root{self._folder}/0")

    def kill(self, place: int) -> None:
        """Kills all processes of Ray on a machine."""
        raylet = self._raylets[place]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(raylet.pid, signal.SIGKILL)
        raylet.wait()

    def close(self) -> None:
        """Ends everything. Signals are ignored meanwhile, because `timeout` and impatient users send them twice."""
        with handled((signal.SIGINT, signal.SIGTERM), signal.SIG_IGN):
            self._close()

    def _close(self) -> None:
        for place in self._raylets:
            self.kill(place)
            if place:
                self._disconnect(place)
        if self._name:
            subprocess.run(["ip", "link", "del", self._name], capture_output=True, check=False)

    def _disconnect(self, place: int) -> None:
        """Removes the link, too, because the namespace lives until its last process has ended."""
        for what in (f"link del {self._name}v{place}", f"netns del {self._name}-{place}"):
            subprocess.run(["ip", *what.split()], capture_output=True, check=False)


@contextlib.contextmanager
def started(machines: int, disk: int = 0) -> Iterator[Network]:
    """Starts a cluster of this machine and of `machines` others. Ends all of them.

    Args:
      machines: number of machines.
      disk: size of the disk of each machine's Ray, in MiB. 0 means that of this machine.
    """
    check()
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ.update(SETTINGS)
    with tempfile.TemporaryDirectory(prefix="gunreal-net-", ignore_cleanup_errors=True) as folder:
        network = Network(Path(folder), disk)
        try:
            network.make()
            for place in range(1, machines + 1):
                network.add(place)
            network.wait(machines)
            yield network
        finally:
            network.close()
