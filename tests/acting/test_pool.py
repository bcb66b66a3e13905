from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time

import numpy as np
import psutil
import pytest
from helpers import FakeLearner
from scripted_env import FAILING, SCRIPTED
from training import holders, is_gone, open_files, use_dead_python, wait_until

from gunreal.acting import pool
from gunreal.acting.agent import Outbox
from gunreal.acting.output import Output
from gunreal.acting.pool import Member, Pool, Remote
from gunreal.acting.predictor import BasePredictor
from gunreal.acting.process import EXIT_BAD_INPUT
from gunreal.config import warning
from gunreal.config.schema import Config
from gunreal.envs import process_groups
from gunreal.experience import queues
from gunreal.experience.segment import Layout
from gunreal.experience.spec import RecordedField, Spec

LAYOUT = Layout(
    Spec((3,), 1, "float32", 3, t_max=4), agents=2, groups=2, replay_size=40, extra={}, slots=2, mailboxes={}
)


class Server:
    """Answers the requests of agent processes in a thread."""

    def __init__(self):
        self.pool = Pool(rollouts=100)
        self.requests, self.rollouts = queues.Pipe(queues.REQUEST), queues.Pipe(queues.ROLLOUT)
        self.episodes = queues.Pipe(queues.EPISODE)
        self.outbox = Outbox((self.requests.write_fd,), self.rollouts.write_fd, self.episodes.write_fd)
        self._predictor, self._done = BasePredictor(self.pool, FakeLearner(), 0), False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while not self._done:
            self._predictor.serve(self.requests.get(100, 0.01))

    def start(self, config, layout=LAYOUT):
        remote = Remote(self.pool.next_process(), config, layout, self.outbox)
        self.pool.add(remote)
        remote.start()
        return remote

    def close(self):
        for member in self.pool.members():
            self.pool.remove(member.process).close()
        self._done = True
        self._thread.join()
        for pipe in (self.requests, self.rollouts, self.episodes):
            pipe.close()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


def test_replies_reach_the_worker_until_the_member_is_closed():
    before = open_files()
    member = Member(0, LAYOUT)
    member.reply(3, [1, 0])
    assert member.wake.get(10, 0).tolist() == [(3, 1), (3, 0)]
    write_fd = member.wake.write_fd
    member.close()
    others = [queues.Pipe(queues.REPLY) for _ in range(3)]
    assert write_fd in [fd for other in others for fd in (other.read_fd, other.write_fd)]  # the number is in use again
    member.reply(3, [1])
    assert not any(len(other) for other in others)
    for other in others:
        other.close()
    del member  # with the last array goes the mapping
    assert not open_files() - before


def test_a_process_steps_and_leaves_in_order(server, monkeypatch, tmp_path):
    """It closes its environments, and nothing of it stays behind. Its libraries use one thread."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    before = open_files()
    config = Config(env=SCRIPTED, env_args={"script": "--T", "log": str(tmp_path / "log")}, t_max=4, run_ahead=0)
    remote = server.start(config)
    assert remote.stuck_for() < 0  # starting is given more time than a step
    wait_until(lambda: remote.segment.end.min() >= 8)
    memory = {os.fstat(remote.segment.fd).st_ino}
    assert len(holders(memory)) >= 2
    assert not remote.exited() and remote.output.last() == ""
    process = psutil.Process(remote.popen.pid)
    assert not any("tensorflow" in os.path.basename(m.path) for m in process.memory_maps())
    assert [process.environ()[f"{library}_NUM_THREADS"] for library in ("OMP", "OPENBLAS")] == ["1", "1"]
    np.testing.assert_array_equal(remote.segment.arrays["frame"][0, :5, 1], [0, 1, 2, 3, 0])
    remote.leave()
    wait_until(remote.exited)
    assert not os.path.exists(remote._folder.name)  # also if the server cannot remove it
    server.pool.remove(remote.process).close()
    assert remote.popen.returncode == 0
    assert (tmp_path / "log").read_text() == "closed\n" * 2
    remote = None
    assert not open_files() - before
    assert not holders(memory)


def failing(marks, how, at=3, times=1):
    """An environment that fails; `marks` is where it counts."""
    return Config(env=FAILING, env_args={"how": how, "at": at, "times": times, "marks": str(marks)}, t_max=4)


@pytest.mark.parametrize(("how", "code"), [("raise", 1), ("exit", 2), ("kill", -signal.SIGSEGV)])
def test_a_crash_is_seen(server, tmp_path, how, code):
    """It is none of bad input, also if an environment exits with the code of the command for that."""
    remote = server.start(failing(tmp_path, how, times=9))
    wait_until(remote.exited)
    assert remote.popen.returncode == code != EXIT_BAD_INPUT
    errors = remote.output.last()
    if how == "raise":
        assert "scripted_env.py" in errors and errors.endswith("RuntimeError: the emulator is on fire")
        assert "Fatal Python error" not in errors


def test_temporary_files_of_a_killed_process_are_removed(server, monkeypatch, tmp_path):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    remote = server.start(failing(tmp_path, "file"))
    wait_until(remote.exited)
    assert [file.name for file in (tmp_path / "temporary").glob("gunreal-*/*")] == ["left-behind"]
    server.pool.remove(remote.process).close()
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize("how", ["orphan", "leave"])
def test_children_of_a_process_end_with_it(server, monkeypatch, tmp_path, how):
    """Also where it has crashed, or has closed its environments and ended in order."""
    monkeypatch.setattr("gunreal.envs.process_groups._LEAVING", 60.0)
    remote = server.start(failing(tmp_path, how, at=3 if how == "orphan" else -1))
    wait_until((tmp_path / "child").exists)
    if how == "orphan":
        wait_until(remote.exited)
    else:
        wait_until(lambda: remote.segment.end.min() >= 4)
        server.pool.remove(remote.process).close()
    assert remote.popen.returncode == (-signal.SIGSEGV if how == "orphan" else 0)
    wait_until(lambda: is_gone(int((tmp_path / "child").read_text())))


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_hanging_process_ends_with_its_children(server, tmp_path, is_killed):
    """It is killed, or its server is gone, so that the kernel closes its input."""
    remote = server.start(failing(tmp_path, "child"))
    wait_until(lambda: (tmp_path / "child").exists() and remote.stuck_for() > 0.1)
    if is_killed:
        remote.kill()
        remote.kill()  # once more does no harm
        assert remote.exited() and remote.popen.returncode == -signal.SIGKILL
    else:
        remote.popen.stdin.close()
        wait_until(remote.exited)
        assert not os.path.exists(remote._folder.name)
    wait_until(lambda: is_gone(int((tmp_path / "child").read_text())))


def test_a_process_that_hangs_while_it_opens_its_environments(server, monkeypatch, tmp_path):
    monkeypatch.setattr("gunreal.acting.pool._STARTING", 0.0)
    remote = server.start(failing(tmp_path, "sleep", at=-1))
    wait_until((tmp_path / "0").exists)
    wait_until(lambda: remote.stuck_for() > 0.1)
    server.pool.remove(remote.process).close()
    assert remote.popen.returncode == -signal.SIGKILL


def test_a_process_that_has_been_stopped_is_stuck(server, monkeypatch):
    monkeypatch.setattr("gunreal.acting.pool._STARTING", 0.0)
    remote = server.start(Config(env=SCRIPTED, env_args={"script": "--T"}))
    wait_until(lambda: remote.segment.end.min() > 3)
    os.kill(remote.popen.pid, signal.SIGSTOP)
    remote.reply(queues.TRAINED, {0})
    wait_until(lambda: remote.stuck_for() > 0.3)
    monkeypatch.setattr("gunreal.acting.pool._PAUSE", 0.05)
    time.sleep(0.1)
    assert remote.stuck_for() == 0  # this process may have been stopped, too
    remote.kill()
    assert remote.exited()


def test_bad_input_has_its_own_exit_code(server):
    config = Config(env="ALE/Pong-v5", agents=2)
    layout = LAYOUT._replace(extra={"speed": RecordedField("speed", (), "float32")})
    remote = server.start(config, layout)
    wait_until(remote.exited)
    assert remote.popen.returncode == EXIT_BAD_INPUT
    assert "cannot record ['speed']" in remote.output.last() and "\n" not in remote.output.last()


def test_a_process_that_dies_before_it_has_read_anything(server, monkeypatch, tmp_path):
    use_dead_python(tmp_path, monkeypatch)
    monkeypatch.setattr(sys, "path", sys.path + ["/x" * 2**17])  # more than its input pipe holds
    remote = server.start(Config(env=SCRIPTED))
    wait_until(remote.exited)
    assert remote.popen.returncode == 3 and remote.output.last() == "no such luck"
    server.pool.remove(remote.process).close()


def test_kept_output_is_bounded():
    output = Output()
    os.write(output.fileno(), b"x" * 2**20 + b"\nthe end")
    assert len(output.last()) == 4000 and output.last().endswith("the end")
    output.pass_on_warnings()
    assert output.last() == ""
    os.write(output.fileno(), b"again")  # at the file's end, as the process would
    output.pass_on_warnings()
    assert output.last() == "again"
    output.close()


def test_warnings_reach_the_user_once(server, monkeypatch, capfd):
    """Also those at the end, of two processes with two environments each; and they are no part of an error."""
    monkeypatch.setattr(warning, "_said", set())
    for _ in range(2):
        remote = server.start(Config(env="side_effects:Warning", t_max=4, run_ahead=0))
        wait_until(lambda: remote.segment.end.min() >= 4)  # noqa: B023
        assert set(remote.output.last().splitlines()) == {"a line of the environment"}
        server.pool.remove(remote.process).close()
    first, *others = capfd.readouterr().err.splitlines()
    assert re.fullmatch(r"gunreal: a warning of an environment \(UserWarning, .*side_effects.py:\d+\)", first)
    assert others[0] == "gunreal: a line for a log" and len(others) == 2
    assert others[1].startswith("gunreal: side_effects:Warning failed when it was closed: RuntimeError: already closed")


def test_the_time_to_leave_begins_when_it_is_told_to(monkeypatch):
    """Several are told at once, and closing them takes no longer than closing one."""
    remote, now, slept = Remote(0, Config(), LAYOUT, Outbox((), 1, 1)), 100.0, []
    monkeypatch.setattr(pool.time, "monotonic", lambda: now)
    monkeypatch.setattr(pool.time, "sleep", slept.append)
    monkeypatch.setattr(process_groups, "has_ended", lambda _: len(slept) > 3)
    remote.leave()
    now += process_groups._LEAVING
    remote.close()
    assert not slept
