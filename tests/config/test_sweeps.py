"""What a sweep file means."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from wording import MEAN

from gunreal.config import sweeps
from gunreal.config.checks import check
from gunreal.config.flags import settings
from gunreal.config.schema import Config, ConfigError

SWEEPS = Path(__file__).parents[2] / "configs" / "sweeps"
PAPER = {"objective": "a3c", "t_max": 20, "min_batch": 40, "learning_rate": 3e-4, "rms_initial": 1.0, "epsilon": 0.1}
PAPER |= {"reduction": "sum", "objective_args": {"correction": "epsilon"}, "normalize_observations": "off"}
PAPER |= {"tasks": ("pc", "vr", "rp")}
TWO = '[settings.base]\n[settings.tasks]\ntasks = ["pc", "vr"]\ntask.pc.weight = 0.02\n'


@pytest.fixture
def load(tmp_path):
    def load(text, *flags, **options):
        (tmp_path / "mine.toml").write_text(text)
        return sweeps.load(tmp_path / "mine.toml", settings(["sweep", *flags]), options)

    return load


def names(sweep):
    return [run.config.name for run in sweep.runs]


def test_settings_times_environments_times_seeds(load):
    sweep = load('seeds = 2\nenvs = ["ALE/Pong-v5", "mine:Maze"]\nsteps = 5\n' + TWO)
    assert sweep.folder == Path("runs/mine") and sweep.parallel == 1 and sweep.score == math.inf
    assert names(sweep) == [
        *("Pong-base-s1", "Pong-tasks-s1", "Maze-base-s1", "Maze-tasks-s1"),
        *("Pong-base-s2", "Pong-tasks-s2", "Maze-base-s2", "Maze-tasks-s2"),
    ]
    last = sweep.runs[-1]
    assert last.setting == "tasks" and last.given == {
        "env": "mine:Maze", "steps": 5, "tasks": ("pc", "vr"), "task": {"pc": {"weight": 0.02}},
        "seed": 2, "name": "Maze-tasks-s2", "logdir": "runs/mine"}  # fmt: skip


def test_one_environment_is_not_in_the_names(load):
    sweep = load('seeds = [3, 7]\nname = "other"\nlogdir = "there"\nenv = "gunreal/Catch-v0"\n')
    assert names(sweep) == ["base-s3", "base-s7"] and sweep.folder == Path("there/other")
    assert {run.config.env for run in sweep.runs} == {"gunreal/Catch-v0"}
    assert sweep.runs[0].given["steps"] == Config.steps  # a run with fewer steps goes on


def test_options_of_a_task_are_for_the_settings_that_have_it(load):
    text = '[task.spr]\nweight = 2\n[settings.base]\n[settings.spr]\ntasks = ["spr"]\n[settings.vr]\ntasks = ["vr"]\n'
    for sweep in (load("task_share = 0.5\n" + text), load(text, "--task", "spr.weight=2", "--task_share", "0.5")):
        base, spr, vr = (run.config for run in sweep.runs)
        assert (base.task, spr.task, vr.task) == ({}, {"spr": {"weight": 2}}, {})
        assert (base.task_share, spr.task_share, vr.task_share) == (1, 0.5, 0.5)


def test_a_field_without_effect_on_some_settings_is_for_the_others(load):
    text = 'runner = "cluster"\nquorum = 0.8\n[settings.sync]\n[settings.async]\nsync = "off"\n'
    assert [run.given.get("quorum") for run in load(text).runs] == [0.8, None]
    assert load(text, "--sync", "off").runs[0].given["quorum"] == 0.8  # which the check refuses


def test_an_option_of_a_task_that_no_setting_has_stays_for_the_check(load):
    for text in ("[task.sprr]\nweight = 2\n" + TWO, TWO + "[settings.spr]\ntask.sprr.weight = 2\n"):
        assert any("sprr" in run.config.task for run in load(text).runs)


def test_flags_override_the_file(load):
    sweep = load('seeds = 5\nsteps = 5\nenvs = ["ALE/Pong-v5"]\nepisodes = 3\n' + TWO, "--env", "x-v0", "--steps=1M",
                 seeds=1, only=["tasks"], parallel=2)  # fmt: skip
    (run,) = sweep.runs
    assert (run.config.name, run.config.env, run.config.steps) == ("tasks-s1", "x-v0", 1_000_000)
    assert (sweep.parallel, sweep.episodes) == (2, 3)
    assert names(load('env = "x-v0"\n', envs=["y-v0"])) == ["y-base-s1"]


def test_a_setting_can_begin_with_a_file_of_settings(load, tmp_path):
    (tmp_path / "paper.toml").write_text('env = "ALE/Pong-v5"\ntasks = ["pc"]\ntask.pc.weight = 0.5\nt_max = 7\n')
    text = 'envs = ["ALE/Qbert-v5"]\nt_max = 9\n[settings.paper]\nconfig = "paper.toml"\ntask.pc.discount = 0.5\n'
    (run,) = load(text).runs
    assert (run.config.env, run.config.t_max) == ("ALE/Qbert-v5", 7)
    assert run.config.task == {"pc": {"weight": 0.5, "discount": 0.5}}
    (run,) = load('config = "paper.toml"\n[settings.more]\nt_max = 8\n').runs
    assert (run.config.env, run.config.t_max, run.config.tasks) == ("ALE/Pong-v5", 8, ("pc",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[base]\nt_max = 7", r"mine.toml: unknown table base; write \[settings.base\]"),
        ("sedes = 3", rf"mine.toml: unknown key sedes; {MEAN} seeds\?"),
        ("[settings.base]\nsteps = 'x'", "mine.toml: settings.base: steps is 'x'"),
        ("[settings.base]\nstep = 1", rf"settings.base: unknown key step; {MEAN} steps\?"),
        ("[settings.base]\nseed = 1", "settings.base: seed is set by the sweep; write seeds"),
        ("seed = 4", "write seeds = 4 or a list of seeds"),
        ("env = 'a'\nenvs = ['b']", "has env and envs"),
        ("envs = ['b']\n[settings.base]\nenv = 'a'", "env is set by envs"),
        ("envs = ['a/Pong-v5', 'b/Pong-v4']", "two runs called Pong-base-s1"),
        ("envs = 'a'", "must be a list of environments"),
        ("seeds = 0", "seeds is 0, but must be"),
        ("seeds = [1, 1]", "two runs called base-s1"),
        ("parallel = 0", "parallel is 0, but must be a whole number"),
        ("score = 'x'", "score is 'x', but must be a number"),
        ("settings = 3", "settings is no table of tables"),
        ("[settings.'a/b']", "letters, digits"),
        ("config = 'none.toml'", "cannot read .*none.toml"),
        ("[", "is not valid TOML"),
    ],
)
def test_bad_files_are_refused_in_one_line(load, text, message):
    with pytest.raises(ConfigError, match=message) as raised:
        load(text)
    assert "\n" not in str(raised.value)


def test_a_setting_that_is_not_there(load):
    with pytest.raises(ConfigError, match=rf"has no setting task; {MEAN} tasks\?"):
        load(TWO, only=["task"])


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_sweeps_of_the_papers(path):
    """Every run is a configuration that exists, and no two settings are the same."""
    sweep = sweeps.load(path, {}, {"seeds": 1})
    for run in sweep.runs:
        check(run.config)
    configs = [dataclasses.replace(run.config, name="") for run in sweep.runs]
    assert all(a != b for i, a in enumerate(configs) for b in configs[:i])
    assert f"# gunreal sweep configs/sweeps/{path.name}\n" in path.read_text()


def test_the_constants_of_the_papers():
    runs = {run.setting: run.config for run in sweeps.load(SWEEPS / "fig10.toml", {}, {"seeds": 1}).runs}
    assert all(getattr(runs["gunreal"], key) == value for key, value in PAPER.items())
    assert (runs["unreal"].observation, runs["unreal"].frame_stack, runs["ga3c"].tasks) == ("rgb", 1, ())
    assert dataclasses.replace(runs["base"], env=Config.env, steps=Config.steps, name="", logdir="runs") == Config()
