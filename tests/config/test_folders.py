from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shlex
import subprocess
import sys
import threading

import pytest
from wording import MEAN

from gunreal.config import folders
from gunreal.config.checks import check
from gunreal.config.files import load
from gunreal.config.schema import FIELDS, Config, ConfigError


def test_names_are_made_and_unique(tmp_path):
    config = Config(logdir=str(tmp_path / "new" / "runs"), tasks=("pc", "some.module:Mine"))
    paths = [folders.prepare_run_dir(config) for _ in range(3)]
    assert len(set(paths)) == 3
    for path in paths:
        assert path.name.startswith("Pong-v5-pc-Mine-")
        assert Config(**load(path / "config.toml")) == dataclasses.replace(config, name=path.name)


def test_a_name_is_taken_once(tmp_path):
    config = Config(logdir=str(tmp_path), name="it's mine")
    (tmp_path / "it's mine").mkdir()  # an empty folder is no run
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    assert folders.prepare_run_dir(config) == tmp_path / "it's mine"
    with pytest.raises(ConfigError, match="or choose another --name") as error:
        folders.prepare_run_dir(config)
    words = shlex.split(str(error.value).partition("continue it with ")[2])  # it can be copied to a shell
    assert words[:3] == ["gunreal", "resume", str(tmp_path / "it's mine")]
    with pytest.raises(ConfigError, match="other is not empty and holds no run; empty it or choose another --name"):
        folders.prepare_run_dir(dataclasses.replace(config, name="other"))


def test_of_runs_that_start_at_once_one_gets_the_name(tmp_path):
    """The others change nothing in its folder."""
    for turn in range(30):
        barrier, made = threading.Barrier(2), []

        def start(seed, name=f"run{turn}", barrier=barrier, made=made):
            barrier.wait()
            with contextlib.suppress(ConfigError):
                made.append((seed, folders.prepare_run_dir(Config(logdir=str(tmp_path), name=name, seed=seed))))

        threads = [threading.Thread(target=start, args=(seed,)) for seed in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [(seed, path)] = made
        assert folders.saved_config(path).seed == seed


def test_a_resumed_run_keeps_its_place_among_the_others(tmp_path):
    first, second = (folders.prepare_run_dir(Config(logdir=str(tmp_path), name=name)) for name in ("b", "a"))
    os.utime(first / folders.CONFIG, (1, 1))
    folders.save_config(folders.resume_config(first, {"steps": 5}), first)
    assert folders.runs(tmp_path) == [first, second] and folders.saved_config(first).steps == 5


def test_a_logdir_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("", "mine"):
        with pytest.raises(ConfigError, match="cannot write to .*; choose another folder with --logdir"):
            folders.prepare_run_dir(Config(logdir=str(tmp_path / "file"), name=name))
    with pytest.raises(ConfigError, match="cannot write to .*x: File name too long; shorten --name or --logdir"):
        folders.prepare_run_dir(Config(logdir=str(tmp_path), name="x" * 300))


def test_find(tmp_path):
    path = folders.prepare_run_dir(Config(logdir=str(tmp_path), name="breakout"))
    assert folders.find("breakout", str(tmp_path)) == folders.find(str(path)) == path.resolve()
    os.utime(folders.prepare_run_dir(Config(logdir=str(tmp_path), name="xylophone")) / folders.CONFIG, (0, 0))
    run = folders.prepare_run_dir(Config(logdir=str(tmp_path / "mine"), name="base-s1"))
    os.utime(run / folders.CONFIG, (0, 0))
    for name, logdir, message in (
        ("base-s1", tmp_path, rf"not found.*{MEAN} mine/base-s1\?"),
        ("mine", tmp_path, f"'mine' is a folder of runs; name one of them, such as {run}"),
        (run.parent, "none", f"is a folder of runs; name one of them, such as {run}"),
        ("breakuot", tmp_path, f"{MEAN} breakout?"),
        ("zzz", tmp_path, "the newest run there is breakout"),
        ("zzz", tmp_path / "none", "check --logdir"),
        ("zzz", "x" * 5000, "check --logdir"),
        ("", tmp_path, "not found"),
        ("x" * 300, tmp_path, "not found"),
        ("~nobody-here/run", "runs", "home folder of an unknown user; write it without ~"),
        ("run", "~nobody-here/runs", "home folder of an unknown user; write it without ~"),
    ):
        with pytest.raises(ConfigError, match=message):
            folders.find(str(name), str(logdir))
    with pytest.raises(ConfigError, match="home folder of an unknown user"):
        folders.prepare_run_dir(Config(logdir="~nobody-here/runs"))


def test_a_name_is_first_looked_up_in_logdir(tmp_path, monkeypatch):
    """Also if the current folder has a run of this name."""
    here, there = (folders.prepare_run_dir(Config(logdir=str(tmp_path / x), name="run")) for x in ("here", "there"))
    monkeypatch.chdir(here.parent)
    assert folders.find("run", str(there.parent)) == there.resolve()
    assert folders.find("run") == folders.find("./run", str(there.parent)) == here.resolve()
    assert folders.command("resume", here) == "gunreal resume ./run"


def test_resume_takes_what_does_not_define_the_run(tmp_path, monkeypatch):
    config = Config(logdir=str(tmp_path), name="a", tasks=("vr",), task={"vr": {"weight": 0.5}}, t_max=5)
    path = folders.prepare_run_dir(config).rename(tmp_path / "moved")
    changed = {"steps": 9_000_000, "agents": 8, "scheduler": "queue", "predictors": 2, "metrics_seconds": 1}
    changed |= {"memory_limit": 2**30, "track": "wandb", "max_batch": 64, "env_timeout": 9.0}
    resumed = folders.resume_config(path, {**changed, "t_max": 5, "logdir": "elsewhere"})
    assert resumed == dataclasses.replace(config, **changed, name="moved", logdir=str(tmp_path.resolve()))
    path = folders.prepare_run_dir(Config(logdir=str(tmp_path), name="b", runner="device"))
    monkeypatch.setattr("gunreal.config.checks.is_installed", lambda name: True)  # as if JAX were
    assert folders.resume_config(path, {"devices": "2"}).devices == "2"


def test_resume_refuses_what_defines_the_run(tmp_path):
    path = folders.prepare_run_dir(Config(logdir=str(tmp_path), name="a"))
    others = {"env": "CartPole-v1", "tasks": ("vr",), "hidden": 64, "network": "large", "frame_stack": 1, "seed": 2}
    others |= {"optimizer": "rmsprop", "discount": 0.123, "name": "b", "env_args": {"a": 1}}
    others |= {"objective": "a3c", "runner": "device", "init": "b", "precision": "bfloat16"}
    for name, value in others.items():
        with pytest.raises(ConfigError, match=f"cannot change {name} "):
            folders.resume_config(path, {name: value})
    with pytest.raises(ConfigError, match="cannot change learning_rate from 'auto' to 0.1; leave it out"):
        folders.resume_config(path, {"learning_rate": 0.1})
    with pytest.raises(ConfigError, match="at least 1"):
        folders.resume_config(path, {"agents": 0})
    assert set(FIELDS) >= folders.CHANGEABLE


def test_of_the_tasks_only_weights_may_change(tmp_path):
    options = {"sizes": {"units": 32, "depths": [1, 2]}}
    saved = Config(logdir=str(tmp_path), name="a", tasks=("vr", "of_sizes:Sizes"), task=options)
    path = folders.prepare_run_dir(saved)
    given = {"vr": {"weight": 0.25}, "sizes": {"units": 32, "depths": [1, 2]}}
    resumed = folders.resume_config(path, {"task": given})
    assert resumed.task == {"vr": {"weight": 0.25}, "sizes": {"units": 32, "depths": [1, 2]}}
    for option, value, kept in (("units", 64, 32), ("depths", [3], [1, 2])):
        change = f"cannot change task.sizes.{option} from {kept} to {value}; leave it out"
        with pytest.raises(ConfigError, match=re.escape(change)):
            folders.resume_config(path, {"task": {"sizes": {option: value}}})
    with pytest.raises(ConfigError, match="task.vr.weight is -1"):
        folders.resume_config(path, {"task": {"vr": {"weight": -1}}})
    unknown = folders.resume_config(path, {"task": {"other": {"units": 2}}})  # refused when the tasks are loaded
    assert unknown.task["other"] == {"units": 2}


def test_saved_values_that_lose_their_effect_are_kept(tmp_path):
    """Only what is given with the resumption has to have an effect."""
    saved = Config(logdir=str(tmp_path), name="a", runner="cluster", nodes=2, quorum=1.0, reducers=3, warmup=10)
    saved = dataclasses.replace(saved, sync="off", eval_steps=100, eval_episodes=3)
    path = folders.prepare_run_dir(saved)
    resumed = folders.resume_config(path, {"runner": "parallel", "eval_steps": 0})
    assert (resumed.nodes, resumed.quorum, resumed.reducers, resumed.eval_episodes) == (2, 1.0, 3, 3)
    check(resumed, ())
    with pytest.raises(ConfigError, match="quorum has no effect in parallel runs"):
        folders.resume_config(path, {"runner": "parallel", "quorum": 0.5})
    with pytest.raises(ConfigError, match="eval_episodes has no effect"):
        folders.resume_config(path, {"eval_steps": 0, "eval_episodes": 4})
    with pytest.raises(ConfigError, match="quorum has no effect in parallel runs"):
        check(Config(quorum=1.0))


def test_a_folder_is_held_by_one_process(tmp_path):
    """Until it lets go of it, or dies."""
    program = (
        "import sys, time\nfrom gunreal.config import folders\n"
        f"with folders.locked({str(tmp_path)!r}):\n    print('held', flush=True)\n    time.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        try:
            message = "being trained by another process; stop that one"
            with pytest.raises(ConfigError, match=message), folders.locked(tmp_path):
                pass
        finally:
            other.kill()
    with folders.locked(tmp_path), pytest.raises(ConfigError, match="another process"), folders.locked(tmp_path):
        pass
    with folders.locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
