"""Foreign environments in a process of their own, which never loads a learning framework.

An environment may change the working directory, handle signals, or load libraries that clash with TensorFlow, as Mesa's
software OpenGL does. What opens environments beside the network therefore keeps foreign ones apart, as agent processes
do. The library's own environments stay here, and so do those of device runs, which are JAX functions.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from gunreal.config.plugins import place
from gunreal.config.process import python
from gunreal.config.schema import Config, ConfigError
from gunreal.config.warning import catch_warnings, warn, warn_once
from gunreal.envs import process_groups
from gunreal.envs.make import erring, is_foreign, look, make
from gunreal.envs.raw import Raw
from gunreal.envs.step import AgentFailure, Step, VectorEnv
from gunreal.experience.spec import RecordedField, Spec


class Host:
    """A process that opens environments, and closes them at its end. Messages call it by the `name` of one."""

    def __init__(self, name: str):
        self._name = name
        self._connection, theirs = multiprocessing.Pipe()
        # What environments print must not mix with the output of a command.
        output = subprocess.DEVNULL if sys.__stderr__ is None or sys.__stderr__.closed else sys.__stderr__.fileno()
        self._popen = subprocess.Popen(
            python("from gunreal.envs.apart import main\nmain()"),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # this process handles a terminal's Ctrl-C
        )
        process_groups.tell(self._popen, theirs.fileno())
        theirs.close()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a module's function in the process, with the list of opened environments and `args`.

        Raises:
          ConfigError: the process has died. The message is one line.
          Exception: what the function has raised, with a note of the traceback there.
        """
        try:
            self._connection.send((function, args))
            while not self._connection.poll(1.0):
                if process_groups.has_ended(self._popen):  # a process that it has left behind may hold the connection
                    raise EOFError
            error, result, warnings = self._connection.recv()
        except (EOFError, OSError):
            raise ConfigError(f"{self._name} {self._how_it_ended()}") from None
        for text in warnings:
            warn_once(text)
        if error:
            raise error
        return result

    def open(self, config: Config, num_envs: int, extra_keys: Sequence[str] = ()) -> VectorEnv:
        """Opens environments as `gunreal.envs.make.make` does. All errors are a ConfigError."""
        return _Away(self, config, num_envs, *self.call(_open, config, num_envs, extra_keys))

    def close(self) -> None:
        """Closes the environments and ends the process."""
        self._connection.close()
        process_groups.leave(self._popen, time.monotonic())
        process_groups.close_input(self._popen)

    def _how_it_ended(self) -> str:
        process_groups.leave(self._popen, time.monotonic())
        code = self._popen.returncode
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"has ended its process with {how}; run the environment alone, without gunreal, to find out why"


class _Away:
    """Environments in the process of a host. See `VectorEnv`."""

    def __init__(self, host: Host, config: Config, num_envs: int, number: int, about: dict[str, Any]):
        self._host, self._config, self._number, self.num_envs = host, config, number, num_envs
        self.frame: tuple[int, ...] = about["frame"]
        self.dtype: str = about["dtype"]
        self.num_actions: int = about["num_actions"]
        self.raw: Raw = about["raw"]

    def step(self, actions: np.ndarray, reset: np.ndarray, seeds: np.ndarray) -> Step:
        """Steps all copies. See `VectorEnv`. Raises AgentFailure if the environment fails."""
        step: Step = self._host.call(_step, self._config, self._number, actions, reset, seeds)
        return step

    def close(self) -> None:
        """Does nothing: the host closes all of its environments."""


@contextlib.contextmanager
def opener(config: Config) -> Iterator[Callable[..., VectorEnv]]:
    """Yields `make` without its first argument, for this process or for another one. The latter ends afterward."""
    if not _is_apart(config):
        yield functools.partial(make, config)
        return
    with contextlib.closing(Host(config.env)) as host:
        yield functools.partial(host.open, config)


def examine(config: Config) -> tuple[Spec, Raw, Config]:
    """Returns what `gunreal.envs.make.look` returns.

    Raises:
      ConfigError: as `look`, the environment ends its process, or it cannot be in one process with the framework.
    """
    if not _is_apart(config):
        return look(config)
    with contextlib.closing(Host(config.env)) as host:
        found, has_llvm = host.call(_look, config)
    if has_llvm and config.runner == "serial" and config.backend == "tensorflow":
        raise ConfigError(
            f"{config.env} draws with Mesa's software OpenGL, which crashes in one process with TensorFlow; use "
            "--runner parallel, or --backend jax"
        )
    return found


def check_recorded(config: Config, fields: Collection[RecordedField]) -> None:
    """Resets the environment once.

    Raises:
      ConfigError: the environment lacks one of the recorded fields, or its values do not fit the field.
    """
    if not fields:
        return
    with opener(config) as open_envs:
        env = open_envs(1, sorted({field.key for field in fields}))
        with contextlib.closing(env):
            extra = env.step(np.zeros(1, np.int32), np.ones(1, bool), np.array([config.seed])).extra
    for field in fields:
        value = np.asarray(field.converted(extra[field.key]))
        stored = np.dtype(field.dtype)
        lossy = value.dtype.kind == "f" and stored.kind != "f"  # 0.5 would become 0
        lossy |= stored.kind in "iu" and not np.array_equal(value.astype(stored), value)  # 300 would become 44
        if lossy or value.shape[1:] != field.shape:
            number = value.size and value.dtype.kind in "biuf"
            span = f" with values from {value.min()} to {value.max()}" if number else ""
            raise ConfigError(
                f"a task records {field.key!r} as {field.dtype} of shape {field.shape}, but {config.env} has "
                f"{value.dtype} of shape {value.shape[1:]}{span}; convert it in the environment, or leave out the task"
            )


def _is_apart(config: Config) -> bool:
    return is_foreign(config) and config.runner != "device"


# What follows runs in the process of a host. Each function gets the list of its environments first.


def _look(_: list[VectorEnv], config: Config) -> tuple[tuple[Spec, Raw, Config], bool]:
    """What `look` returns, and whether LLVM has been loaded."""
    found = look(config)
    with open("/proc/self/maps") as maps:
        return found, any("libLLVM" in line for line in maps)


def _open(opened: list[VectorEnv], config: Config, num_envs: int, extra_keys: Sequence[str]) -> tuple[int, dict]:
    with erring(config, "cannot be opened"):
        env = make(config, num_envs, extra_keys)
    opened.append(env)
    return len(opened) - 1, {name: getattr(env, name) for name in ("frame", "dtype", "num_actions", "raw")}


def _step(opened: list[VectorEnv], config: Config, number: int, *args: np.ndarray) -> Step:
    try:
        return opened[number].step(*args)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # an environment can raise anything
        raise AgentFailure(f"{config.env} failed: {place(error)}") from error


def _portable(error: BaseException) -> Exception:
    """The error as it can be sent to another process."""
    try:
        sent = pickle.loads(pickle.dumps(error))
    except Exception:  # an exception of the environment's own
        sent = None
    if not isinstance(sent, Exception):
        sent = RuntimeError(f"{type(error).__name__}: {error}")
    if not isinstance(sent, ConfigError):
        sent.add_note("In the process of the environment:\n" + "".join(traceback.format_exception(error)))
    return sent


def main() -> None:
    """Entry point of the process. The number of its connection arrives on standard input."""
    connection = Connection(pickle.load(sys.stdin.buffer))
    os.set_inheritable(connection.fileno(), False)
    threading.Thread(target=process_groups.exit_with_the_server, daemon=True).start()
    opened: list[VectorEnv] = []
    warnings: list[str] = []
    catch_warnings(warnings.append)
    with contextlib.suppress(EOFError, OSError):  # the other end is closed
        while True:
            function, args = connection.recv()
            error: Exception | None = None
            result: Any = None
            try:
                result = function(opened, *args)
            except (Exception, SystemExit) as raised:
                error = _portable(raised)
            connection.send((error, result, warnings))
            warnings.clear()
    catch_warnings(warn)
    for env in opened:
        env.close()
