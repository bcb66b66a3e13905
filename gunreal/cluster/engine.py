"""Ray: where it comes from, which machines it knows, and its actors. Only this file starts or stops it."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

from gunreal.cluster.guard import Guard
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.step import AgentFailure

_REACH = 5.0  # seconds for a connection to a cluster
_SILENCE = 5.0  # seconds without an answer of the head after which it is lost. Ray aborts this process after 60
LONGEST_STEP = 1.0  # seconds of silence that one look can add, because this process may itself have been stopped
_NEAR = 0.1  # seconds for a connection to another machine. Rounds wait meanwhile
_SLICE = 0.5  # seconds of waiting between looks at the head
_STORE = 512 * 2**20  # bytes of shared memory for weights and gradients, taken as they are needed
_TERMINATED = (signal.SIGTERM, 1)  # exit codes of Ray's handlers of SIGTERM, before and after its node has started
_LOCAL_REMEDY = "free some space in /tmp and /dev/shm"
# An example of the longest path in its folder.
_SOCKET = "/ray12345678/session_2026-01-31_12-00-00_123456_1234567/sockets/plasma_store"
_LONGEST_PATH = 107  # bytes of the path of a socket

# Settings of a Ray that runs on this machine only. They are read when Ray is imported.
_LOCAL = {
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's own setting for machines that listen on the loopback only
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_pipe_based_agent_to_parent_health_check": "1",  # so that Ray's own helpers end at once with it
    "RAY_worker_niceness": "0",  # as for other runs; by default, nodes give way to all other programs
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # all nodes on this machine share its GPU
}


class HeadLost(AgentFailure):
    """The machine that holds the cluster together is gone. Ray ends all processes within a minute."""


class Machine(NamedTuple):
    """A machine of the cluster.

    Attributes:
      id: Ray's name for it.
      host: its name for people.
      address: address and port at which Ray listens on it.
    """

    id: str
    host: str
    gpus: float
    address: tuple[str, int]


class Engine:
    """A connection to the Ray at `config.address`, or to one that it starts on this machine.

    Raises:
      ConfigError: Ray cannot be reached.
    """

    def __init__(self, config: Config):
        self._joins = bool(config.address)
        os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # at the end nobody asks for the last gradients
        if not self._joins:
            _prepare_local()
        import ray  # `config.checks` has found it

        self.ray = ray
        self._own = not self.ray.is_initialized()  # a script's own Ray is left running
        self._guard: Guard | None = None  # of a Ray that was started here
        self._known: list[Machine] = []
        self.is_lost = False
        try:
            if self._own:
                with _kept_signals():
                    self._connect(config.address)
            self._head = self.ray.get_runtime_context().gcs_address
        except BaseException:  # such as Ctrl-C
            self.close()
            raise
        self._looked, self._silent = time.monotonic(), 0.0

    def _connect(self, address: str) -> None:
        if ":" in address:
            _reach(address)
        folder = "" if address else _make_folder()
        quiet = {"logging_level": "ERROR", "log_to_driver": False}
        try:
            if address:
                self.ray.init(address=address, **quiet)
            else:
                # The guard has to know the folder before Ray starts, because the start may be interrupted.
                self._guard = Guard(folder)
                own = {"num_cpus": 1, "object_store_memory": _STORE, "include_dashboard": False}
                self.ray.init(address="local", _temp_dir=self._guard.folder, **own, **quiet)
        except Exception as error:  # Ray raises many kinds, also plain ones if its start takes too long
            what = f"join the Ray cluster at {address}" if address else "start Ray on this machine"
            remedy = "start it with ray start --head, or check its address and token" if address else _LOCAL_REMEDY
            if self._guard:
                self._guard.keeps_folder = True
                remedy += f", or see Ray's logs in {self._guard.folder}/session_latest/logs"
            reason = (str(error) or repr(error)).splitlines()[0].rstrip(".")
            raise ConfigError(f"cannot {what}: {reason}; {remedy}") from error

    def machines(self) -> list[Machine]:
        """The machines that can run a node: all that are alive, except those started with `--num-cpus=0`.

        Raises:
          HeadLost: the head has not answered for some seconds.
        """
        if not self._has_head():
            return self._known
        self._known = [
            Machine(
                found["NodeID"],
                found["NodeManagerHostname"],
                found["Resources"].get("GPU", 0),
                (found["NodeManagerAddress"], found["NodeManagerPort"]),
            )
            for found in self._asked(self.ray.nodes)
            if found["Alive"] and (found["Resources"].get("CPU") or not self._joins)
        ]
        return self._known

    def _has_head(self) -> bool:
        """Whether the head answers. Without it, Ray's own functions would wait until this process is aborted.

        Raises:
          HeadLost: it has not answered for some seconds.
        """
        host, _, port = self._head.rpartition(":")
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, LONGEST_STEP), now
        try:
            socket.create_connection((host, int(port)), 1.0).close()
        except OSError as error:
            self._silent += passed
            self.is_lost = self._silent > _SILENCE
            if self.is_lost:
                raise HeadLost(
                    f"the head of the Ray cluster at {self._head} is lost; start the cluster again and use --resume"
                ) from error
            return False
        self._silent = 0.0
        return True

    def _asked(self, call: Callable[[], Any]) -> Any:
        """The result of a call that needs the head. If the head dies in the meantime, such a call never returns.

        Raises:
          HeadLost: the head has not answered for some seconds.
        """
        answer: Future[Any] = Future()

        def work() -> None:
            try:
                answer.set_result(call())
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        while not wait([answer], _SLICE).done:
            self._has_head()
        return answer.result()

    def reaches(self, machine: Machine) -> bool:
        """Whether the network to a machine is there, even if Ray on it is not."""
        try:
            socket.create_connection(machine.address, _NEAR).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return True

    def wait(self, refs: Sequence[Any], seconds: float) -> bool:
        """Waits until all references have a result or an error. Returns whether they do.

        Raises:
          HeadLost: the head has not answered for some seconds, so that Ray may not tell that a process has died.
        """
        for _ in range(math.ceil(seconds / _SLICE)):  # a deadline may pass while this process is stopped
            ready, _ = self.ray.wait(list(refs), num_returns=len(refs), timeout=_SLICE)
            if len(ready) == len(refs):
                return True
            self._has_head()
        return False

    def actor(self, kind: type, *args: Any, machine: Machine, share: float = 0, calls: int = 1) -> Any:
        """Starts a process that holds an object of class `kind`.

        Args:
          share: number of GPUs for it.
          calls: number of calls that it answers at the same time. With 1 it answers them in order.

        Raises:
          HeadLost: the head has not answered for some seconds.
        """
        while not self._has_head():
            time.sleep(_SLICE)
        options = {"num_gpus": share, "max_concurrency": calls, **_placed(machine)}
        return self._asked(lambda: self.ray.remote(kind).options(**options).remote(*args))

    def call(self, function: Callable[..., Any], *args: Any, machine: Machine) -> Any:
        """Calls a function on a machine. Returns a reference to its result. Raises HeadLost as `actor` does."""
        return self._asked(lambda: self.ray.remote(function).options(**_placed(machine)).remote(*args))

    def kill(self, actor: Any) -> None:
        """Ends the process of an actor, which Ray does itself without the head. Raises HeadLost as `actor` does."""
        if self._has_head():
            self._asked(lambda: self.ray.kill(actor))

    def close(self) -> None:
        """Ends all actors. A Ray that was started here ends too, and its folder is removed."""
        try:
            if self._own and not self.is_lost and self.ray.is_initialized():
                with _kept_signals():
                    self.ray.shutdown()
        finally:
            if self._guard:
                self._guard.close()


def _placed(machine: Machine) -> dict[str, Any]:
    """Ray's options to run something on a machine, next to what runs there."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # A soft affinity may be ignored.
    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(machine.id, soft=False)}


def _reach(address: str) -> None:
    """Raises ConfigError if nothing listens there. Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), _REACH).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot join the Ray cluster at {address} ({error}); start it with ray start --head, or check the address"
        ) from error


def _prepare_local() -> None:
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return
    if ray is not None and os.environ.get("RAY_AUTH_MODE") != "token":
        raise ConfigError(
            "Ray was imported without authentication; set RAY_AUTH_MODE=token before, or call ray.init yourself"
        )
    for name, value in _LOCAL.items():
        os.environ.setdefault(name, value)
    if "RAY_AUTH_TOKEN_PATH" not in os.environ:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


@contextlib.contextmanager
def _kept_signals() -> Iterator[None]:
    """Keeps the handlers of signals. Ray installs its own, which would end the run at once.

    Ray's handlers of SIGTERM raise SystemExit. The signal is then handled again, by the handler from before.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        yield
    except SystemExit as error:
        if error.code in _TERMINATED:
            restore()
            signal.raise_signal(signal.SIGTERM)
        raise
    finally:
        restore()


def _make_folder() -> str:
    """A new folder for one Ray, where Ray would have its own."""
    linux = os.environ.get("TMPDIR") if sys.platform.startswith("linux") else None
    parent = os.environ.get("RAY_TMPDIR") or linux or "/tmp"
    longest = _LONGEST_PATH - len(_SOCKET)
    if (length := len(os.fsencode(parent))) > longest:
        raise ConfigError(
            f"cannot start Ray on this machine: the path of its folder may have {longest} bytes, and {parent} has "
            f"{length}; set RAY_TMPDIR=/tmp"
        )
    return tempfile.mkdtemp(prefix="ray", dir=parent)


def in_one_line(error: BaseException) -> str:
    """The last line of a traceback says what happened. Ray's own errors begin with it, and end with possible causes."""
    text = str(error).partition(" Some common causes include:")[0]
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()] or [repr(error)]
    return lines[0] if len(lines) < 3 else f"{lines[0]} {lines[-1]}"[:300]
