from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import sys
import types
from contextlib import nullcontext

import pytest
from broken_pipes import unread
from trained import short_run
from wording import MEAN

import gunreal
from gunreal.acting import pool
from gunreal.config import folders
from gunreal.config.files import save
from gunreal.config.schema import Config
from gunreal.records import checkpoint, metrics
from gunreal.train import command, main, prepare

CARTPOLE = "--env CartPole-v1"


def saved_run(folder, blobs=None, **options):
    """A run's folder as a resumed run finds it."""
    run_dir = folder / "runs" / "old"
    run_dir.mkdir(parents=True)
    config = Config(env="CartPole-v1", name="old", logdir=str(folder / "runs"), **options)
    save(config, run_dir / "config.toml")
    if blobs == "damaged":
        (run_dir / "checkpoints").mkdir()
        (run_dir / "checkpoints" / "step_000000000010.npz").write_bytes(b"PK")
    elif blobs is not None:
        plain = {"metrics": {}, "config": dataclasses.asdict(config)}
        checkpoint.save(run_dir, 10, {}, json.loads(json.dumps(plain)), blobs)


@pytest.mark.parametrize(
    ("blobs", "options", "flags", "message"),
    [
        ("damaged", {}, "", "has no readable checkpoint"),
        ({}, {}, "--runner serial", "a resumed run cannot change runner from 'parallel' to 'serial'"),
        ({"serial": b""}, {"runner": "serial"}, "--runner parallel", "cannot change runner from 'serial'"),
        ({"serial": b""}, {"runner": "serial"}, "--agents 16", "a serial run cannot change agents from 24"),
        ({}, {}, "--discount 0.5", "a resumed run cannot change discount from 0.99 to 0.5"),
        ({}, {"tasks": ("vr",)}, "--task vr.speed=3", "task 'vr' has no option 'speed'"),
    ],
)
def test_runs_that_cannot_be_resumed(tmp_path, monkeypatch, capfd, blobs, options, flags, message):
    monkeypatch.chdir(tmp_path)
    saved_run(tmp_path, blobs, **options)
    before = sorted(tmp_path.rglob("*"))
    assert main(["train", "--resume", "old", *flags.split()]) == 2
    err = capfd.readouterr().err
    *_, err = err.splitlines()
    assert err.startswith("gunreal: ") and message in err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_is_being_trained_can_not_be_resumed(tmp_path, capfd):
    saved_run(tmp_path)
    run_dir = tmp_path / "runs" / "old"
    before = (run_dir / "config.toml").read_bytes()
    with folders.locked(run_dir):
        assert main(["train", "--resume", str(run_dir), "--steps", "7"]) == 2
    assert capfd.readouterr().err.endswith("stop that one first, or start a new run\n")
    assert (run_dir / "config.toml").read_bytes() == before


def test_a_run_has_all_options_of_its_tasks_and_its_network():
    """So their defaults may change."""
    config = Config(env="gunreal/Catch-v0", tasks=("pc",), task={"pc": {"weight": 0.5}}, network="impala")
    config = prepare(config).config
    assert config.task == {"pc": {"weight": 0.5, "discount": 0.9, "cell": 0}}
    assert config.network_args == {"width": 1}


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("files", "folder", "fix"),
    [(0, "runs", "choose another folder with --logdir"), (1, "{new}", "free some space in {new}")],
)
def test_a_full_disk_at_the_start_is_one_line(tmp_path, monkeypatch, capfd, files, folder, fix):
    """The name of the run is free afterward."""
    written, replace = [], os.replace

    def fill(*paths):
        written.append(paths)
        (full if len(written) > files else replace)(*paths)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "replace", fill)
    assert main(["train", *CARTPOLE.split(), "--name", "new"]) == 2
    err = capfd.readouterr().err
    new = tmp_path / "runs" / "new"
    assert err == f"gunreal: cannot write to {folder}: No space left on device; {fix}\n".format(new=new)
    assert not new.exists()


def test_an_agent_process_that_cannot_be_started_is_one_line(tmp_path, monkeypatch, capfd):
    def refuse(*_, **__):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "subprocess", types.SimpleNamespace(Popen=refuse, PIPE=None))
    assert main(["train", "--env", "gunreal/Catch-v0", "--agents", "2", "--name", "new"]) == 1
    line = capfd.readouterr().err.splitlines()[-1]
    assert line.startswith("gunreal: cannot start an agent process: [Errno 11]") and "use fewer --agents" in line


def test_an_environment_that_hangs_before_the_start_is_named(monkeypatch):
    """The line comes from a timer, which `waiting` sets."""
    waits = []
    monkeypatch.setattr(sys.modules["gunreal.train"], "waiting", lambda what: waits.append(what) or nullcontext())
    prepare(Config(env="CartPole-v1"))
    assert waits == ["CartPole-v1 to open", "the first reset of CartPole-v1"]


def test_a_refused_resume_changes_nothing(tmp_path, monkeypatch):
    """As when the environment has changed since, or no cluster is found."""
    run = short_run(tmp_path / "runs", "mine", steps=40)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.path.iterdir() if path.is_file()}

    def refuse(*_):
        raise gunreal.ConfigError("it has changed")

    monkeypatch.setattr(sys.modules["gunreal.train"], "make_runner", refuse)
    with pytest.raises(gunreal.ConfigError, match="it has changed"):
        gunreal.resume(run, steps=80, show=False)
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before}


def test_a_last_checkpoint_that_cannot_be_written_is_a_failure(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkpoint, "save", full)
    small = "--runner serial --agents 2 --t_max 5 --min_batch 20 --hidden 8 --steps 100"
    assert main(["train", *CARTPOLE.split(), *small.split()]) == 1
    output = capfd.readouterr()
    *_, last = output.err.splitlines()
    assert last.startswith("gunreal: the weights of step 1") and "No space left" in last
    assert "finished" not in output.out
    (lines,) = tmp_path.glob("runs/*/metrics.jsonl")
    assert metrics.read(lines)[-1]["stopped_by"] == "error"


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_at_step_0(tmp_path, capfd):
    """Its metrics begin anew, too."""
    saved_run(tmp_path, runner="serial", agents=2, steps=40, min_batch=20, hidden=8)
    run_dir = tmp_path / "runs" / "old"
    (run_dir / "metrics.jsonl").write_text('{"step": 30}\n')
    assert main(["train", "--resume", str(run_dir)]) == 0
    assert "has no checkpoint yet: it starts at step 0" in capfd.readouterr().err
    run = gunreal.load(run_dir)
    assert run.step >= 40 and run.metrics[-1]["stopped_by"] == "steps" and "seconds" in run.metrics[0]


@pytest.mark.parametrize(
    ("number", "default"),  # a process in the background may have been started with a signal ignored
    [(signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)],
)
def test_a_signal_while_a_run_starts(tmp_path, monkeypatch, capfd, request, number, default):
    """It ends at once; a new run leaves its name free, a resumed one is as it was."""

    def interrupted(config, *_):
        assert (tmp_path / "runs" / config.name / "config.toml").is_file()
        os.kill(os.getpid(), number)

    monkeypatch.chdir(tmp_path)
    before = signal.signal(number, default)
    request.addfinalizer(lambda: signal.signal(number, before))
    monkeypatch.setattr(sys.modules["gunreal.train"], "make_runner", interrupted)
    saved_run(tmp_path)
    flags = ["train", *CARTPOLE.split(), "--name", "new"]
    assert main(flags) == main(["train", "--resume", "old"]) == 128 + number
    assert capfd.readouterr().err.count("gunreal: interrupted\n") == 2
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["old"]
    assert (tmp_path / "runs" / "old" / "config.toml").is_file()


def test_a_closed_output_does_not_fail_the_command(monkeypatch):
    """As with `>&-`, and with a reader that goes away."""
    error, codes = unread(), []
    error.write("the last line")
    with monkeypatch.context() as patch:
        for name, value in (("stdout", None), ("stderr", error)):
            patch.setattr(sys, name, value)
        patch.setattr(sys.modules["gunreal.train"], "main", lambda _: 0)
        patch.setattr(os, "_exit", codes.append)
        command()
    assert codes == [0]
    with pytest.raises(BrokenPipeError):
        error.close()


def test_resume_goes_on_with_a_run(tmp_path, monkeypatch, capsys):
    """By what `load` gave, by folder or by name. Steps given at one resume hold at the next."""
    run = short_run(tmp_path / "runs", "mine", steps=40)
    monkeypatch.chdir(tmp_path)
    for named, steps in ((run, 80), (run.path, 120), ("mine", 160)):
        run = gunreal.resume(named, steps=steps, show=False)
        assert run.path == (tmp_path / "runs" / "mine").resolve()
        assert run.config.steps == steps and steps <= run.step < steps + 40
        assert run.metrics[-1]["stopped_by"] == "steps"
    assert gunreal.resume("mine", logdir=str(tmp_path / "runs"), steps=164, show=False).step >= 164
    before = {file: file.stat().st_mtime_ns for file in run.path.rglob("*")}
    assert main(["train", "--resume", str(run.path)]) == 2  # it has nothing left to do
    assert "of 164 steps; raise the budget with --steps" in capsys.readouterr().err
    assert {file: file.stat().st_mtime_ns for file in run.path.rglob("*")} == before


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"stepz": 7}, f"the configuration has no stepz; {MEAN} steps?"),
        ({"steps": "many"}, "steps is 'many', but must be a whole number"),
    ],
)
def test_overrides_that_resume_rejects(tmp_path, monkeypatch, overrides, message):
    monkeypatch.chdir(tmp_path)
    saved_run(tmp_path)
    with pytest.raises(gunreal.ConfigError, match=message):
        gunreal.resume("old", **overrides)
