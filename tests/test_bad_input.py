"""Command lines that `gunreal train` refuses."""

from __future__ import annotations

import pytest
import scripted_env  # noqa: F401
from wording import MEAN

from gunreal.train import main

TOML = {
    "key.toml": 'env = "CartPole-v1"\nlearnin_rate = 0.1\n',
    "value.toml": 'env = "CartPole-v1"\nagents = "many"\n',
    "range.toml": 'env = "CartPole-v1"\nt_max = 0\n',
    "broken.toml": "env = \n",
}
PLUGINS = {
    "broken_plugin.py": "import gunreal\n1 / 0\n",
    "strict_plugin.py": """
import dataclasses
from gunreal.tasks import AuxiliaryTask

@dataclasses.dataclass(frozen=True)
class Strict(AuxiliaryTask):
    name = "strict"
    units: int = 8

    def __post_init__(self):
        if self.units % 2:
            raise ValueError(f"units is {self.units}; choose an even number")

@dataclasses.dataclass(frozen=True, kw_only=True)
class Open(AuxiliaryTask):
    name = "open"
    units: int
""",
}
CARTPOLE = "--env CartPole-v1"
CATCH = "--env gunreal/Catch-v0"
LARGE = f"{CATCH} --observation rgb --frame_size 256 --agents 8 --memory_limit 2GiB"

BAD = [  # flags, and what the line has to say
    ("--config none.toml", "cannot read none.toml"),
    ("--config key.toml", f"unknown key learnin_rate; {MEAN} learning_rate?"),
    ("--config value.toml", "agents is 'many', but must be a whole number"),
    ("--config range.toml", "t_max is 0, but must be at least 1"),
    ("--config broken.toml", "broken.toml is not valid TOML"),
    ("--learnin_rate 0.1", f"unknown flag --learnin_rate; {MEAN} --learning_rate?"),
    ("--learning_rate fast", "'fast' is not a number"),
    ("--learning_rate -1", "learning_rate is -1.0, but must be at least 0"),
    ("--t_max 0", "t_max is 0, but must be at least 1"),
    ("--agents 0", "agents is 0, but must be at least 1"),
    ("--memory_limit 100", "give a unit"),
    ("--serial --predictors 2", "serial uses one thread"),
    ("CartPole-v1", "unexpected argument 'CartPole-v1'"),
    ("--env ALE/Pongg-v5", f"unknown game 'ALE/Pongg-v5': {MEAN} ALE/Pong-v5"),
    ("--env Cartpole-v9", f"unknown environment 'Cartpole-v9': {MEAN} CartPole"),
    ("--env none_such:Id-v0", "no module 'none_such'"),
    ("--env scripted_env:None-v0", "module 'scripted_env' has no environment, function or class 'None-v0'"),
    ("--env Pendulum-v1", "continuous actions"),
    (f"{CARTPOLE} --env_args gravitation=1", "env_args do not fit CartPole-v1"),
    (f"{CARTPOLE} --tasks pcc", f"{MEAN} pc?"),
    (f"{CARTPOLE} --tasks pc", "pc needs image observations"),
    (
        f"{CARTPOLE} --tasks none_such:Task",
        "cannot load task 'none_such:Task' from none_such:Task: ModuleNotFoundError",
    ),
    (
        f"{CARTPOLE} --tasks scripted_env:Task",
        "cannot load task 'scripted_env:Task' from scripted_env:Task: AttributeError",
    ),
    (f"{CARTPOLE} --tasks scripted_env:Scripted", "is not a subclass of gunreal.tasks.base.AuxiliaryTask"),
    (f"{CARTPOLE} --tasks broken_plugin:Task", "broken_plugin.py:2"),
    (
        f"{CARTPOLE} --tasks strict_plugin:Strict --task strict.units=3",
        "task 'strict' does not accept its options: units is 3; choose an even number",
    ),
    (f"{CARTPOLE} --tasks strict_plugin:Open", "does not accept its options: Open.__init__() missing"),
    (f"{CATCH} --network impala --network_args width=0", "impala.width is 0, but must be at least 1"),
    (f"{CARTPOLE} --emulator own", "emulator has no effect on CartPole-v1; leave it out or choose an Atari game"),
    (f"{CARTPOLE} --frame_size 64", "frame_size has no effect on CartPole-v1, which has no images; leave it out"),
    (f"{CARTPOLE} --layout nchw", "layout has no effect on CartPole-v1, which has no images; leave it out"),
    (f"{CARTPOLE} --scheduler_seconds 5", "scheduler_seconds has no effect without the scheduler; leave it out or"),
    (f"{CARTPOLE} --replay_fill full", "replay_fill has no effect without tasks; leave it out or add --tasks"),
    (
        f"{CARTPOLE} --serial --run_ahead 2",
        "run_ahead has no effect in serial runs; leave it out or leave out --serial",
    ),
    (f"{CATCH} --network impala --first_stride 2", "first_stride has no effect on the impala network"),
    (f"{CARTPOLE} --tasks vr --task vr.speed=3", "task 'vr' has no option 'speed'"),
    (f"{CARTPOLE} --tasks vr --task_weight vr=-1", "task.vr.weight is -1"),
    (
        f"{CARTPOLE} --tasks rp --t_max 1 --replay_size 2",
        "replay_size 2 is below the 3 steps of a sequence of task 'rp'; use --replay_size 3 or more",
    ),
    (f"{CARTPOLE} --logdir a_file/runs", "choose another folder with --logdir"),
    (f"{CARTPOLE} --name ../up", "is not a folder name"),
    (f"{LARGE} --serial --tasks vr", "2,048 MiB leaves no room for 8 agents: the server takes"),
    (
        f"{LARGE} --agents_per_process 8 --tasks vr",
        "lower --agents_per_process, --min_batch, --replay_size or the size",
    ),
    ("--env scripted_env:Numbered --env_args states=1000000 --memory_limit 4GiB", "of an observation (3,906 KiB)"),
    ("--env scripted_env:Numbered --env_args states=2147483648 --serial", "an observation of scripted_env:Num"),
    ("--resume none_such", "run 'none_such' not found"),
]


@pytest.mark.parametrize(("flags", "message"), BAD)
def test_bad_input(tmp_path, monkeypatch, capfd, flags, message):
    """One line that says what to mend, exit code 2, and nothing is left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (TOML | PLUGINS).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "a_file").touch()
    assert main(["train", *flags.split()]) == 2
    out, err = capfd.readouterr()
    assert err.startswith("gunreal: ") and err.count("\n") == 1 and message in err and out == ""
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {*TOML, *PLUGINS, "a_file"}


def test_network_that_does_not_fit(tmp_path, monkeypatch, capfd):
    """Found before a folder is made."""
    monkeypatch.chdir(tmp_path)
    assert main(["train", *f"{CARTPOLE} --network small --name x".split()]) == 2
    err = capfd.readouterr().err
    assert err == "gunreal: the small network needs images, not vectors of 4; use --network mlp\n"
    assert not (tmp_path / "runs").exists()


def test_a_network_that_breaks_a_rule_is_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *["--env", "gunreal/Catch-v0", "--network", "networks:Normalized", "--name", "x"]]) == 2
    err = capfd.readouterr().err
    assert "gunreal: torso/1 has untrained state" in err and "Traceback" not in err
    assert not (tmp_path / "runs" / "x").exists()
