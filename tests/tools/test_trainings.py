from __future__ import annotations

import dataclasses

import pytest
from experiments import papers
from planned import CATCH, FINISHED, make_run, plan, small, trainings

from gunreal.config.flags import from_flags
from gunreal.config.schema import ConfigError
from gunreal.train import _with_backend


def test_plan(tmp_path):
    wanted = plan(tmp_path, small("base", "pc"), 2, ["--entropy", "0.003", "--task_weight", "pc=0.05,vr=0.5"])
    assert [t.config.name for t in wanted] == [
        "ablation-base-s1",
        "ablation-pc-s1",
        "ablation-base-s2",
        "ablation-pc-s2",
    ]
    assert [t.config.seed for t in wanted] == [1, 1, 2, 2]
    assert [t.config.tasks for t in wanted[:2]] == [(), ("pc",)]
    assert [t.config.task for t in wanted[:2]] == [{}, {"pc": {"weight": 0.05}}]  # to whom it concerns
    assert {t.config.entropy for t in wanted} == {0.003} and {t.config.steps for t in wanted} == {1000}
    assert wanted[0].path == tmp_path / "ablation-base-s1"


def test_options_of_a_task_given_as_a_class_are_kept(tmp_path):
    experiment = papers.EXPERIMENTS["ga3c-fig2"]  # whose settings have no tasks of their own
    flags = ["--tasks", "gunreal.tasks.value_replay:ValueReplay", "--task", "vr.weight=0.5"]
    assert {training.config.task["vr"]["weight"] for training in plan(tmp_path, experiment, extra=flags)} == {0.5}


def test_env_and_steps_of_a_file_count_unless_they_are_given(tmp_path):
    (tmp_path / "a.toml").write_text('env = "CartPole-v1"\nsteps = 77\ntasks = ["vr"]\nentropy = 0.5\n')
    file = ["--config", str(tmp_path / "a.toml")]
    (training,) = plan(tmp_path, small("pc"), extra=file, env="", steps=0, logdir="")
    config = training.config
    assert (config.env, config.steps, config.tasks, config.entropy) == ("CartPole-v1", 77, ("pc",), 0.5)
    assert config.logdir == "runs/CartPole-v1"
    (training,) = plan(tmp_path, small("pc"), extra=file)
    assert (training.config.env, training.config.steps) == (CATCH, 1000)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("--tasks pc", "setting base of ablation has tasks ()"),
        ("--seed 4", "--seed is set by --seeds"),
        ("--name x", "--name is set by the experiment's name"),
        ("--logdir x", "--logdir is set by --logdir"),
        ("--entrop 1", "did you mean --entropy"),
        ("--entropy -2", "entropy is -2.0"),
        ("--task_weight cpc=1", "task.cpc has options, but cpc is not in tasks"),
    ],
)
def test_flags_that_no_training_can_have(tmp_path, extra, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(").replace(")", r"\)")):
        plan(tmp_path, small("base", "pc"), extra=extra.split())


def test_device_runs_have_the_backend_that_they_save(tmp_path):
    """Also in the file that their command reads, which would else ask for another one."""
    pytest.importorskip("jax")
    (training,) = plan(tmp_path, small("base"), extra=["--runner", "device"])
    assert training.config.backend == "jax"
    training.prepare()
    config, extras = from_flags(training.command()[2:])
    assert _with_backend(config, extras.given) == training.config
    (parallel,) = plan(tmp_path, small("base"))
    (asked,) = plan(tmp_path, small("base"), extra=["--runner", "device", "--backend", "tensorflow"])
    assert parallel.config.backend == asked.config.backend == "tensorflow"


def test_a_share_of_updates_is_for_settings_with_tasks(tmp_path):
    share = ["--task_share", "0.5"]
    base, pc = plan(tmp_path, small("base", "pc"), extra=share)
    assert (base.config.task_share, pc.config.task_share) == (1.0, 0.5)
    with pytest.raises(ConfigError, match="task_share has no effect without tasks"):
        trainings.check(plan(tmp_path, small("base"), extra=share))


def test_every_game_of_an_experiment_is_checked(tmp_path):
    wanted = [training for env in ("CartPole-v1", CATCH) for training in plan(tmp_path, small("pc"), env=env)]
    with pytest.raises(ConfigError, match="task 'pc' does not fit CartPole-v1"):
        trainings.check(wanted)


def test_how_far_a_run_is(tmp_path):
    new, partial, finished, aborted = plan(tmp_path, small("base", "pc", "vr", "rp"))
    make_run(partial, {"step": 400}, {"step": 500, "stopped_by": "SIGINT"}, {"step": 600})
    make_run(finished, {"step": 500, "stopped_by": "SIGINT"}, FINISHED)
    make_run(aborted, {"step": 20}, checkpoint=False)
    states = [(t.step(), t.resumable(), t.finished()) for t in (new, partial, finished, aborted)]
    assert states == [(0, False, False), (600, True, False), (1001, True, True), (20, False, False)]
    assert partial.command()[1:] == ["-m", "gunreal.train", "--resume", str(partial.path)]
    words = ["--config", f"{tmp_path}/ablation-base.toml", "--logdir", str(tmp_path), "--name", "ablation-base-s1"]
    assert new.command()[1:] == ["-m", "gunreal.train", *words, "--seed", "1"]


def test_a_run_with_other_flags_is_rejected(tmp_path):
    make_run(plan(tmp_path, small("pc"))[0], FINISHED)
    trainings.check(plan(tmp_path, small("pc"), extra=["--metrics_seconds", "1"]))  # how it is watched doesn't matter
    with pytest.raises(
        ConfigError, match=r"ablation-pc-s1 has steps 1000, entropy -1.0, not 2000, 0.5; choose another"
    ):
        trainings.check(plan(tmp_path, small("pc"), extra=["--entropy", "0.5"], steps=2000))
    (tmp_path / "ablation-vr-s1").mkdir()
    with pytest.raises(ConfigError, match="exists and is not a run"):
        trainings.check(plan(tmp_path, small("vr")))


def test_the_same_run_of_another_experiment_is_shared(tmp_path):
    base, pc, vr = plan(tmp_path, small("base", "pc", "vr"))
    make_run(base, FINISHED)
    make_run(pc, {"step": 500})
    make_run(vr, checkpoint=False)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.toml").write_text("no such = thing\n")
    again = plan(tmp_path, dataclasses.replace(small("base", "pc", "vr", "rp"), name="again"))
    assert [training.setting for training in trainings.share(again, tmp_path)] == ["base", "pc"]
    assert again[0].path.resolve() == base.path and again[0].finished()
    assert again[1].resumable() and not again[2].path.exists()
    other = plan(tmp_path, dataclasses.replace(small("base"), name="other"), extra=["--discount", "0.9"])
    assert trainings.share(other, tmp_path) == []
    assert trainings.share(again, tmp_path) == []  # they have their names already


def test_a_link_to_nothing_is_no_run(tmp_path):
    (training,) = plan(tmp_path, small("pc"))
    training.path.symlink_to("gone")
    trainings.check([training])
    assert trainings.share([training], tmp_path) == [] and not training.path.is_symlink()
