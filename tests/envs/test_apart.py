"""What a foreign environment does to its process stays there, and its mistakes are one line before anything starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import side_effects
from wording import MEAN

from gunreal.__main__ import main as command
from gunreal.config import warning
from gunreal.config.schema import Config, ConfigError
from gunreal.envs.apart import examine, opener
from gunreal.envs.make import describe, look
from gunreal.envs.step import AgentFailure
from gunreal.records import metrics
from gunreal.train import main, train


def meddled():
    return os.getcwd(), signal.getsignal(signal.SIGTERM), sys.stdout, np.random.get_state()[1].tolist()


def config(env, **options):
    return Config(env=f"side_effects:{env}", **options)


def test_an_environment_changes_nothing_in_this_process(capfd):
    before = meddled()
    spec, raw, _ = examine(config("Meddling"))
    with opener(config("Meddling")) as open_envs:
        step = open_envs(2).step(np.zeros(2, np.int32), np.ones(2, bool), np.arange(2))
    assert meddled() == before
    assert (spec.frame, spec.num_actions, raw.space.shape, step.frame.shape) == ((3,), 2, (3,), (2, 3))
    out, err = capfd.readouterr()
    assert not out and "a line of the environment" in err


def test_its_process_loads_no_framework():
    with opener(Config(env="CartPole-v1")) as open_envs:
        loaded = open_envs.func.__self__.call(side_effects.loaded)
    assert "gymnasium" in loaded and not {"tensorflow", "jax", "keras"} & set(loaded)


@pytest.mark.parametrize(("how", "message"), [("SIGSEGV", "SIGSEGV"), ("SIGABRT", "SIGABRT"), (3, "exit code 3")])
def test_an_environment_that_ends_its_process_is_one_line(how, message, capfd, tmp_path):
    code = main(["train", "--env", "side_effects:Dying", "--env_args", f"how={how}", "--logdir", str(tmp_path)])
    assert code == 2 and not list(tmp_path.iterdir())
    assert f"has ended its process with {message}; run the environment alone" in capfd.readouterr().err


def test_a_run_stays_in_its_folder_when_the_environment_leaves_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = train(config("Meddling", agents=2, steps=60, runner="serial", name="one"), show=False)
    os.chdir(tmp_path)
    assert run.path == tmp_path / "runs" / "one" and run.metrics[-1]["step"] >= 60


def test_one_that_cannot_be_closed_is_a_warning(capfd):
    assert examine(config("Unclosable"))[0].num_actions == 2
    assert "side_effects:Unclosable failed when it was closed: RuntimeError: already closed" in capfd.readouterr().err


def test_its_warnings_are_told_once(monkeypatch, capfd):
    monkeypatch.setattr(warning, "_said", set())
    for _ in range(2):
        examine(config("Warning"))
    assert capfd.readouterr().err.count("gunreal: a warning of an environment (UserWarning, ") == 1


def test_one_that_may_be_opened_once_per_process():
    with pytest.raises(ConfigError, match="cannot be opened twice in one process; use --agents_per_process 1"):
        examine(config("Single"))
    assert examine(config("Single", agents_per_process=1))[0].num_actions == 2
    with pytest.raises(ConfigError, match="in one process; use --runner parallel and --agents_per_process 1"):
        examine(config("Single", agents_per_process=1, runner="serial"))


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("discrete", -1, r"returned -1, which is not in its observation space Discrete\(5\)"),
        ("discrete", 5, r"returned 5, which is not in its observation space Discrete\(5\)"),
        ("multi", [3, 1], r"returned array\(\[3, 1\]\), which is not in its observation space MultiDiscrete\("),
        ("binary", [0, 2], r"returned array\(\[0, 2\]\), which is not in its observation space MultiBinary\(2\)"),
        ("dict", 5, r"returned 5, which is not in its observation space Discrete\(5\)"),
        ("dict", 1, r"without 'b', which its space Dict\("),
        ("images", 1, r"without 'rgb', which its space Dict\("),
    ],
)
def test_observations_outside_of_their_space_are_named(kind, value, message):
    with pytest.raises(ConfigError, match=message):
        describe(config("Observing", env_args={"kind": kind, "value": value}))


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("gym", "returned a gym.core.Env; wrap it with shimmy.GymV26CompatibilityV0"),
        ("dm_env", "returned a dm_env.core.Env; wrap it with shimmy.DmControlCompatibilityV0"),
        ("pettingzoo", "returned a pettingzoo.core.Env; it has several agents"),
        ("mine", "returned a mine.core.Env; return a gymnasium.Env"),
    ],
)
def test_environments_of_other_interfaces_are_named(package, message, monkeypatch):
    theirs = type("Env", (), {"__module__": f"{package}.core"})
    module = types.ModuleType("others")
    module.make = theirs
    monkeypatch.setitem(sys.modules, "others", module)
    with pytest.raises(ConfigError, match=message):
        describe(Config(env="others:make"))


def test_only_names_of_the_module_are_suggested(monkeypatch):
    module = types.ModuleType("board_games")
    module.tictactoe_v3 = types.ModuleType("board_games.tictactoe_v3")
    module.Tetris = type("Tetris", (), {})
    monkeypatch.setitem(sys.modules, "board_games", module)
    for name, message in {
        "tictactoe_v3": "it is a module; name a function or class in it$",
        "Breakout-v5": "'Breakout-v5'; correct the name$",
        "Tetrs": rf"{MEAN} board_games:Tetris\?$",
    }.items():
        with pytest.raises(ConfigError, match=message):
            describe(Config(env=f"board_games:{name}"))


def test_a_serial_run_whose_environment_fails_is_one_line_and_keeps_its_weights(capsys, tmp_path):
    """It would keep its last whole checkpoint. It has none: the first comes with the first line of metrics."""
    flags = ["--runner", "serial", "--agents", "2", "--steps", "5000", "--logdir", str(tmp_path), "--name", "x"]
    flags += ["--metrics_seconds", "1000"]
    code = main(["train", "--env", "side_effects:Breaking", "--env_args", "at=700", *flags])
    err = capsys.readouterr().err
    assert code == 1 and "Traceback" not in err
    line = err.splitlines()[-1]
    assert line.startswith("gunreal: side_effects:Breaking failed: RuntimeError: the emulator is on fire (")
    assert list(Path(tmp_path, "x", "checkpoints").iterdir())
    assert metrics.read(tmp_path / "x" / metrics.FILE)[-1]["stopped_by"] == "error"


def test_an_evaluation_whose_environment_fails_is_one_line(capsys, tmp_path):
    options = {"agents": 2, "steps": 60, "runner": "serial", "logdir": str(tmp_path)}
    run = train(config("Breaking", env_args={"at": 300}, **options), show=False)
    code = command(["gunreal", "evaluate", str(run.path), "--episodes", "2000"])
    err = capsys.readouterr().err
    assert code == 1 and "Traceback" not in err
    assert "side_effects:Breaking failed: RuntimeError: the emulator is on fire (" in err
    with pytest.raises(AgentFailure, match="failed: RuntimeError: the emulator is on fire"):
        run.evaluate(2000)


def test_one_that_opens_no_more_is_one_line():
    with opener(config("Single")) as open_envs:
        open_envs(1)
        with pytest.raises(ConfigError, match="Single cannot be opened: RuntimeError: Cannot create multiple"):
            open_envs(1)


def test_an_environment_with_software_opengl_is_refused_where_tensorflow_would_crash(monkeypatch):
    """The process with the environment reports whether LLVM has been loaded there, as by Mesa."""
    monkeypatch.setattr("gunreal.envs.apart.Host.call", lambda self, function, config: (look(config), True))
    with pytest.raises(ConfigError, match="use --runner parallel, or --backend jax"):
        examine(config("Plain", runner="serial"))
    assert examine(config("Plain"))[0].num_actions == 2
    assert examine(config("Plain", runner="serial", backend="jax"))[0].num_actions == 2


def test_no_process_is_left_behind():
    with opener(config("Plain")) as open_envs:
        open_envs(1)
        pid = open_envs.func.__self__._popen.pid
    assert subprocess.run(["kill", "-0", str(pid)], capture_output=True).returncode
