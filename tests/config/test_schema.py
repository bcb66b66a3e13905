from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from wording import MEAN

from gunreal.config.checks import check
from gunreal.config.files import load, save
from gunreal.config.schema import FIELDS, Config, ConfigError, close_match

DQN = {"env": "gunreal/Catch-v0", "runner": "device", "objective": "dqn"}


def error(**values) -> str:
    with pytest.raises(ConfigError) as caught:
        check(Config(**values))
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_defaults_are_good_and_every_field_has_help():
    check(Config())
    assert all(field.metadata["help"] for field in FIELDS.values())


@pytest.mark.parametrize(
    ("values", "fix"),
    [
        ({"env": ""}, "give a Gymnasium id"),
        ({"observation": "grey"}, f"one of gray, rgb; {MEAN} gray?"),
        ({"image_key": 3}, "a string"),
        ({"objective_args": {"epochs": 0}}, "ppo.epochs is 0, but must be at least 1 and at most 100 (default 3)"),
        ({"objective": "a3c", "objective_args": {"correction": "vtrac"}}, f"one of epsilon, vtrace; {MEAN} vtrace?"),
        ({"entropy": -0.01}, "entropy is -0.01, but must be at least 0 (default 'auto')"),
        ({"memory_limit": "much"}, "a whole number, or auto"),
        ({"tasks": ("pc", "pc")}, "named twice; remove one of them from tasks, or give it a name of its own, as in"),
        ({"tasks": ("pc", "")}, "empty name"),
        ({"tasks": "pc"}, "a list of names and classes"),
        ({"task": {"pc": {"weight": 0.1}}}, "add it to tasks"),
        ({"tasks": ("pc",), "task": {"pcc": {}}}, f"{MEAN} pc?"),
        ({"tasks": ("pc",), "task": {"pc": {"weight": -1}}}, "at least 0"),
        ({"tasks": ("pc",), "task": {"pc": 0.1}}, "a table of options"),
        ({"env_args": {"size": None}}, "env_args.size is None"),
        ({"replay_size": 10, "tasks": ("vr",)}, "raise replay_size"),
        ({"steps": 0}, "at least 1"),
        ({"steps": 1.5}, "a whole number"),
        ({"steps": True}, "a whole number"),
        ({"normalize_returns": 1}, "true or false"),
        ({"runner": "serial", "predictors": 2}, "predictors has no effect in serial runs"),
        ({"runner": "serial", "scheduler": "queue"}, "leave it out or use --runner parallel"),
        ({"checkpoint_minutes": 0}, "above 0"),
        ({"agents": 34}, "--agents 33 or --agents 35, or --agents_per_process 2"),
        ({"max_batch": 4}, "group size of 6 agents"),
        ({"learning_rate": float("nan")}, "a number"),
        ({"learning_rate_end": 1.0}, "lower it"),
        ({"optimizer": "adam", "rms_decay": 0.9}, "leave it out"),
        ({"optimizer": "rmsprop", "beta1": 0.5}, "use --optimizer adam"),
        ({"network": ""}, "leave it out, or give a name such as small"),
        ({"eval_episodes": 5}, "add --eval_steps"),
        ({"task_share": 0.5}, "task_share has no effect without tasks; leave it out or add --tasks"),
        ({"replay_size": 100}, "replay_size has no effect without tasks; leave it out or add --tasks"),
        (
            {"objective": "a3c", "objective_args": {"gae_lambda": 0.1}},
            "has no option 'gae_lambda'; available: correction",
        ),
        ({"objective": "ddqn", "runner": "device"}, f"or module:Class; {MEAN} dqn?"),
        ({"objective": ""}, "leave it out, or give a name such as a3c"),
        ({"objective": "dqn", "runner": "device", "entropy": 0.1}, "entropy has no effect on dqn"),
        ({"runner": "device", "objective_args": {"overlap": 0}}, "ppo.overlap has no effect in device runs"),
        ({"runner": "device", "min_batch": 40}, "min_batch has no effect in device runs"),
        ({"runner": "serial", "env_timeout": 5}, "env_timeout has no effect in serial runs without evaluations"),
        ({"node_timeout": 5.0}, "node_timeout has no effect in parallel runs; leave it out or use --runner cluster"),
        (
            {"env": "CartPole-v1", "protocol": "v5"},
            "protocol has no effect on CartPole-v1; leave it out or choose an Atari",
        ),
        ({"objective": "dqn"}, "dqn runs on devices only; add --runner device"),
        ({"objective": "a3c", "objective_args": {"log_epsilon": 0.001}}, "a3c.log_epsilon has no effect on vtrace"),
        ({"rms_decay": 1.0}, "below 1"),
        ({"discount": 1.01}, "at most 1"),
        ({"name": "a/b"}, "--logdir"),
        ({"name": ".."}, "--logdir"),
        ({"name": "a\0b"}, "--logdir"),
        ({"logdir": ""}, "give a folder"),
        ({"agents": 5000}, "processes take at most 4096; use --runner device"),
        ({"runner": "cluster", "address": "local"}, "to train on this machine, set nodes only"),
        ({"device_batches": 2}, "no effect in parallel runs; leave it out or use --runner device"),
        (DQN | {"objective_args": {"steps": 21}}, "dqn.steps 21 is above t_max 20; lower it, or raise t_max"),
        (DQN | {"t_max": 2, "device_batches": 1}, "dqn.steps 3 is above t_max 2; lower it, or raise t_max"),
        (DQN | {"normalize_returns": False, "tasks": ("rp",)}, "normalize_returns has no effect on dqn"),
        ({"name": "caf\udce9"}, "name contains 'caf\\udce9', which is not Unicode text; write it in UTF-8"),
        ({"env_args": {"\udce9": 1}}, "env_args contains '\\udce9', which is not Unicode text; write it in UTF-8"),
        ({"env_args": {"size": {1: 2}}}, "env_args.size has the key 1, which TOML cannot hold; use strings as keys"),
        ({"logdir": "a\0b"}, "logdir 'a\\x00b' is not the path of a folder; remove the null character"),
        ({"tasks": ("pc", "./mine:T")}, "task './mine:T' names a file; write mine:T, without a path and .py"),
        ({"env": "/a/mine.py:make"}, "write mine:make, without a path and .py, and run the command in the folder /a"),
        ({"env": f"{Path.cwd()}/mine.py:make"}, "mine.py:make' names a file; write mine:make, without a path and .py"),
        ({"runner": "device", "devices": "two"}, "a number of at least 1, or all"),
        ({"runner": "device", "device_batches": 3}, "use --device_batches 2"),
        ({"runner": "device", "device_batches": 5}, "use --agents 25"),
        ({"runner": "device", "device_batches": 7, "agents": 28, "t_max": 10}, "use --device_batches 5"),
    ],
)
def test_bad_values_are_named_with_their_fix(values, fix):
    text = error(**values)
    assert fix in text
    options = values.get("objective_args", {})
    assert any(name.removesuffix("s") in text for name in [*values, *options])


@pytest.mark.parametrize(
    "fields",
    [
        DQN | {"objective_args": {"steps": 20}},
        DQN | {"normalize_returns": False, "tasks": ("vr",)},
        DQN | {"normalize_returns": False, "tasks": ("mine:Task",)},  # its name may be vr
        {"runner": "device", "t_max": 2, "device_batches": 1},
        {"env": "ALE/Pong-v5", "emulator": "ale"},
        {"env": "ale_py:ALE/Pong-v5"},
        {"eval_minutes": 1, "eval_episodes": 5},
    ],
)
def test_values_that_go_together(fields, monkeypatch):
    monkeypatch.setattr("gunreal.config.checks.is_installed", lambda name: True)  # as if JAX were
    check(Config(**fields))


def test_runs_name_the_package_that_they_need(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert error(runner="device") == 'device runs need JAX; install it with pip install "gunreal[device]"'
    assert 'need Ray; install it with pip install "gunreal[cluster]"' in error(runner="cluster", nodes=2)


def test_a_suggested_number_of_agents_is_good():
    for agents in range(1, 80):
        try:
            check(Config(agents=agents))
        except ConfigError as caught:
            suggested = [int(word.strip(",")) for word in str(caught).split() if word.strip(",").isdigit()][2:4]
            for number in suggested:
                check(Config(agents=number))


FULL = Config(
    env="CartPole-v1",
    env_args={"size": (84, (1, 2)), "ключ": '"😀"', "nested": {"depths": [1, 2.5], "on": True}},
    tasks=("vr", "pkg.mod:Mine"),
    task={"vr": {"weight": 0.1}, "mine": {}},
    learning_rate=7e-4 / 3,
    epsilon=1e-300,
    steps=2**53 + 1,
    runner="serial",
    name="café 試",
    logdir="Läufe",
)


def test_saved_configurations_are_exact(tmp_path):
    for config in (Config(), FULL):
        check(config)
        save(config, tmp_path / "config.toml")
        loaded = load(tmp_path / "config.toml")
        assert list(loaded) != [] and set(loaded) == set(FIELDS)
        assert Config(**loaded) == config


def test_load_converts_other_toml_types(tmp_path):
    path = tmp_path / "some.toml"
    path.write_text('steps = 8e6\nlearning_rate = 1\nmemory_limit = "2GiB"\ntasks = ["pc"]\n[task.pc]\nweight = 0.05\n')
    loaded = load(path)
    assert loaded == {
        "steps": 8_000_000,
        "learning_rate": 1.0,
        "memory_limit": 2**31,
        "tasks": ("pc",),
        "task": {"pc": {"weight": 0.05}},
    }
    assert type(loaded["steps"]) is int and type(loaded["learning_rate"]) is float


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agent = 3", f"unknown key agent; {MEAN} agents?"),
        ("zzz = 3", "unknown key zzz; leave it out"),
        ("[settings.base]", "is a sweep; run gunreal sweep "),
        ("task_weight = {vr = 1}", "task_weight is a flag only; write weight = 0.05 in a table [task.pc]"),
        ("agents = '3'", "agents is '3', but must be a whole number"),
        ("agents = ", "is not valid TOML"),
        ("memory_limit = 'lots'", "'lots' is not a size such as 800MB"),
        ("env_args = 3", "a table"),
    ],
)
def test_load_names_the_file_and_the_key(tmp_path, text, message):
    path = tmp_path / "some.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(path) in str(caught.value) and message in str(caught.value)


def test_load_skips_a_byte_order_mark(tmp_path):
    (tmp_path / "some.toml").write_text("agents = 3", encoding="utf-8-sig")
    assert load(tmp_path / "some.toml") == {"agents": 3}


def test_load_of_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load(tmp_path / "binary.toml")


def test_values_get_their_fields_types():
    given = Config(agents=16.0, t_max=np.float32(20), discount=1, learning_rate=np.float64(0.5), tasks=["pc"])
    assert given == Config(agents=16, t_max=20, discount=1.0, learning_rate=0.5, tasks=("pc",))
    plain = [given.agents, given.t_max, given.discount, given.learning_rate, given.tasks]
    assert [type(value) for value in plain] == [int, int, float, float, tuple]
    changed = dataclasses.replace(given, steps=8e6)
    assert changed.steps == 8_000_000 and type(changed.steps) is int and changed.tasks == ("pc",)
    check(changed)
    for wrong in ({"agents": 16.5}, {"agents": "many"}, {"normalize_returns": 1}, {"env": None}):
        with pytest.raises(ConfigError, match="but must be"):
            Config(**wrong)


def test_an_error_is_one_line():
    error = ConfigError("run 'a\n b' not found: its folder\r\n\n  is gone")
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == "run 'a b' not found: its folder is gone"


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "config.toml"
    save(Config(steps=5), path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError):
        save(Config(steps=6), path)
    assert load(path)["steps"] == 5 and list(tmp_path.iterdir()) == [path]


def test_tables_become_dictionaries_that_other_processes_can_read():
    inner = MappingProxyType({"rows": (1, 2)})
    config = Config(env_args=MappingProxyType({"size": inner}))
    assert config == Config(env_args={"size": {"rows": [1, 2]}}) == pickle.loads(pickle.dumps(config))


def test_a_suggestion_is_a_question():
    """The other tests take its words from here."""
    assert close_match("stepz", ["steps", "agents"]) == "; did you mean steps?" and close_match("x", ["steps"]) == ""


def test_a_game_of_the_emulator_is_that_of_ale_on_it():
    for env in ("gunreal/Pong-v5", "gunreal_emulator:gunreal/Pong-v5"):
        assert Config(env=env) == Config(env="ALE/Pong-v5", emulator="own")
    with pytest.raises(ConfigError, match="use --env ALE/Pong-v5, or --emulator own$"):
        Config(env="gunreal/Pong-v5", emulator="ale")
