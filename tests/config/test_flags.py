from __future__ import annotations

from pathlib import Path

import absl.flags
import pytest
from wording import MEAN

from gunreal.config import folders
from gunreal.config.flags import from_flags, parse_pairs
from gunreal.config.schema import FIELDS, Config, ConfigError


def parse(*argv: str):
    return from_flags(["train", *argv])


def error(*argv: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(*argv)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_no_flags_are_the_defaults():
    config, extras = parse()
    assert config == Config()
    assert not extras.resume and not extras.given
    assert "agents" not in absl.flags.FLAGS  # those of other programs are left alone


def test_every_field_is_a_flag():
    texts = {"tasks": "vr", "task": "vr.weight=0.5", "env_args": "a=1", "network_args": "a=1"}
    texts |= {"objective_args": "epochs=4", "normalize_returns": "false", "memory_limit": "1GiB"}
    for name, field in FIELDS.items():
        text = texts.get(name) or str(field.default)
        extra = ("--tasks=vr",) if name == "task" else ()
        config, extras = parse(f"--{name}={text}", *extra)
        assert name in extras.given
        if name not in texts:
            assert getattr(config, name) == field.default


def test_values():
    config, _ = parse(
        *("--env", "CartPole-v1", "--steps", "8M", "--memory_limit=2GiB", "--learning_rate", "1e-3"),
        "--nonormalize_returns",
        *("--tasks", "vr, rp", "--task", "vr.weight=0.05,vr.discount=0.95", "--task_weight", "rp=2"),
        *("--env_args", "size=3,mode=hard,shape=[1,2],on=true", "--env_args", 'text="a,b=c"'),
    )
    assert (config.env, config.steps, config.memory_limit) == ("CartPole-v1", 8_000_000, 2**31)
    assert config.normalize_returns is False
    assert config.learning_rate == 1e-3 and config.tasks == ("vr", "rp")
    assert config.task == {"vr": {"weight": 0.05, "discount": 0.95}, "rp": {"weight": 2}}
    assert config.env_args["size"] == 3 and config.env_args["mode"] == "hard" and config.env_args["on"] is True
    assert config.env_args["shape"] == [1, 2]


def test_pairs():
    found = {"a": 1, "b": 2.5, "c": "x y", "d": [1, 2], "e": True, "f": "1"}
    assert parse_pairs("a=1,b=2.5,c=x y,d=[1, 2],e=true,f='1'") == found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('a={b="1", c="2"},d=3', {"a": {"b": "1", "c": "2"}, "d": 3}),
        ("a={b=[1, 2], c=[3]}", {"a": {"b": [1, 2], "c": [3]}}),
        ('a="x,b=3"', {"a": "x,b=3"}),
        ("a=tcp://h/?b=1,c=2", {"a": "tcp://h/?b=1", "c": 2}),
        ("a=x,y,b=1", {"a": "x,y", "b": 1}),
        ("a=", {"a": ""}),
        ("a=3#easy,b=1", {"a": "3#easy", "b": 1}),
        ("a=1\nb=2", {"a": "1\nb=2"}),
        ("a=2024-01-01", {"a": "2024-01-01"}),
    ],
)
def test_a_value_is_read_whole(text, value):
    assert parse_pairs(text) == value


def test_later_ones_win():
    assert parse("--agents=8", "--agents=4")[0].agents == 4
    assert parse("--env_args=a=1,b=2", "--env_args=a=3")[0].env_args == {"a": 3, "b": 2}
    assert parse("--normalize_returns", "--nonormalize_returns")[0].normalize_returns is False


def test_precedence(tmp_path):
    path = tmp_path / "some.toml"
    path.write_text(
        'agents = 8\nseed = 5\ntasks = ["pc", "vr"]\n[task.pc]\nweight = 0.05\ndiscount = 0.9\n[env_args]\na = 1\n'
    )
    config, extras = parse("--agents=4", "--task=pc.weight=0.1", "--env_args=b=2", f"--config={path}")
    assert (config.agents, config.seed, config.t_max) == (4, 5, 20)
    assert config.task == {"pc": {"weight": 0.1, "discount": 0.9}}
    assert config.env_args == {"a": 1, "b": 2}
    assert set(extras.given) == {"agents", "seed", "tasks", "task", "env_args"}


INVADERS = 'env = "ALE/SpaceInvaders-v5"\n[env_args]\nframeskip = 3\n'
IMPALA = 'network = "impala"\n[network_args]\nwidth = 2\na = 1\n'
NAMES = 'tasks = ["pc", "vr"]\n[task.pc]\nweight = 0.05\n[task.vr]\nweight = 2\n'
CLASS = 'tasks = ["mine:T", "pc"]\n[task.pc]\nweight = 0.05\n[task.t]\nweight = 2\n'


@pytest.mark.parametrize(
    ("text", "flags", "field", "value"),
    [
        (INVADERS, "--env=ALE/Pong-v5", "env_args", {}),
        (INVADERS, "--env=ALE/Pong-v5 --env_args=mode=1", "env_args", {"mode": 1}),
        (INVADERS, "--env=ALE/SpaceInvaders-v5", "env_args", {"frameskip": 3}),
        ("[env_args]\nframeskip = 3\n", "--env=ALE/Breakout-v5", "env_args", {"frameskip": 3}),  # for any environment
        (IMPALA, "--network=small", "network_args", {}),
        (IMPALA, "--network=impala --network_args=a=3,b=2", "network_args", {"width": 2, "a": 3, "b": 2}),
        (NAMES, "--tasks=vr", "task", {"vr": {"weight": 2}}),
        (CLASS, "--tasks=pc", "task", {"pc": {"weight": 0.05}}),
        (CLASS, "--tasks=", "task", {}),
        (CLASS, "--tasks=mine:T", "task", {"t": {"weight": 2}}),
        (CLASS, "--tasks=other:U", "task", {"t": {"weight": 2}}),  # the name of a class is unknown before it is loaded
    ],
)
def test_options_of_the_file_that_belong_to_what_a_flag_replaces_are_dropped(tmp_path, text, flags, field, value):
    path = tmp_path / "some.toml"
    path.write_text(text)
    config, extras = parse(f"--config={path}", *flags.split())
    assert getattr(config, field) == value == extras.given.get(field, {})


def test_options_of_a_task_that_a_flag_leaves_out_are_an_error(tmp_path):
    (tmp_path / "some.toml").write_text(NAMES)
    assert "task.pc" in error(f"--config={tmp_path / 'some.toml'}", "--tasks=vr", "--task=pc.weight=1")


def test_a_flag_may_take_the_effect_of_lines_of_the_file(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text('env = "ALE/Pong-v5"\ntasks = ["pc"]\nreplay_fill = "full"\nprotocol = "v5"\nframe_size = 96\n')
    for flags in (["--tasks="], ["--env=CartPole-v1", "--tasks="]):
        assert not parse(f"--config={path}", *flags)[1].chosen & {"replay_fill", "frame_size"}
    path.write_text('env = "CartPole-v1"\nprotocol = "v5"\n')
    assert "protocol has no effect on CartPole-v1" in error(f"--config={path}")


def test_the_configuration_of_deepmind_lab_is_also_one_of_the_vizdoom_maze():
    path = Path(__file__).parents[2] / "configs" / "dmlab_nav_maze_static_01.toml"
    assert "--env gunreal/NavMazeStatic-v0" in path.read_text()
    assert parse(f"--config={path}")[0].env_args
    assert parse(f"--config={path}", "--env=gunreal/NavMazeStatic-v0")[0].env_args == {}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--qqq=3"], "unknown flag --qqq; use --helpfull to list all flags"),
        (["--tasks", "pc", "vr"], "unexpected argument 'vr'; if it is a task, write --tasks pc,vr"),
        (["--agents=x"], "flag --agents=x: 'x' is not a whole number"),
        (["--agents"], "Missing value for flag --agents"),
        (["--normalize_returns=perhaps"], "true or false"),
        (["--nonormalize_returns=true"], "--nonormalize_returns=true does not take an argument; leave out the value"),
        (["--normalize_returns", "true"], "argument 'true'; write --normalize_returns or --normalize_returns=true"),
        (["--normalize_returns", "False"], "'False'; write --nonormalize_returns or --normalize_returns=false"),
        (["--seed", "1", "true"], "unexpected argument 'true'; give values as --flag value"),
        (["--tasks", "pc,", "vr,", "rp"], "unexpected argument 'vr,'; write no space after the comma"),
        (["--layout=nchv"], f"{MEAN} nchw?"),
        (["--task=pc=1"], "--task pc.weight=0.05"),
        (["--task_weight=pc.weight=1"], "--task_weight pc=0.05"),
        (["--env_args=a"], "'a' is not of the form key=value, as in frameskip=4"),
        (["--task", "pc"], "'pc' is not of the form key=value, as in pc.weight=0.05"),
        (["--env_args=a=True"], "true or false"),
        (["--memory_limit=2G"], "800MB"),
        (["--memory_limit=10MB"], "memory_limit is 10000000 bytes, but must be at least 64MiB; raise it, as in"),
        (["--memory_limit=800"], "memory_limit is 800 bytes, but must be at least 64MiB; give a unit, as in"),
    ],
)
def test_errors_are_one_line_with_the_fix(argv, message):
    assert message in error(*argv)


@pytest.mark.parametrize(
    ("flag", "shown"), [("-h", ["agents"]), ("--help", ["agents"]), ("--helpfull", [*FIELDS, "resume", "task_weight"])]
)
def test_help(capsys, flag, shown):
    with pytest.raises(SystemExit) as caught:
        parse("--seed", "1", flag)
    text = capsys.readouterr().out
    assert caught.value.code == 0 and text.startswith("usage: train [--flag value] ...")
    assert all(f"--{name}" in text for name in shown)


def test_resume(tmp_path):
    run_dir = folders.prepare_run_dir(Config(logdir=str(tmp_path), name="a", agents=8, steps=1000))
    for name in (str(run_dir), "a"):
        config, extras = parse("--resume", name, f"--logdir={tmp_path}", "--steps=2000")
        assert extras.resume == run_dir.resolve()
        assert (config.agents, config.steps, config.name) == (8, 2000, "a")
    assert "cannot change hidden from 256 to 64" in error("--resume=a", f"--logdir={tmp_path}", "--hidden=64")
