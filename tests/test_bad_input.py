"""Command lines that are refused."""

from __future__ import annotations

import pytest
import scripted_env  # noqa: F401
from metrics_runs import make_run
from trained import catch_run
from wording import MEAN

from gunreal.__main__ import main as command
from gunreal.train import main as train

CARTPOLE = "--env CartPole-v1"
TOML = {
    "key.toml": 'env = "CartPole-v1"\nlearnin_rate = 0.1\n',
    "tiny.toml": 'env = "gunreal/Catch-v0"\n[settings.base]\n[settings.vr]\ntasks = ["vr"]\n',
}
PLUGINS = {
    "strict_plugin.py": """
import dataclasses
from gunreal.tasks import AuxiliaryTask

@dataclasses.dataclass(frozen=True)
class Strict(AuxiliaryTask):
    name = "strict"
    units: int = 8
    replays: int = 1
    updates: int = 1

    def __post_init__(self):
        if self.units % 2:
            raise ValueError(f"units is {self.units}; choose an even number")
""",
    "phasic_plugin.py": """
import dataclasses
from gunreal.config.objective import Phase
from gunreal.objectives.ppo import Ppo

@dataclasses.dataclass(frozen=True)
class Phasic(Ppo):
    name = "phasic"

    def phase(self):
        return Phase(2, 1)
""",
}
PHASIC = "--objective phasic_plugin:Phasic"
CATCH = "--env gunreal/Catch-v0"
LARGE = f"{CATCH} --observation rgb --frame_size 256 --agents 8 --memory_limit 2GiB"

BAD = [  # flags of `gunreal train`, and what the line has to say
    ("--config none.toml", "cannot read none.toml"),
    ("--config key.toml", f"unknown key learnin_rate; {MEAN} learning_rate?"),
    ("--learnin_rate 0.1", f"unknown flag --learnin_rate; {MEAN} --learning_rate?"),
    ("--learning_rate fast", "'fast' is not a number"),
    ("--t_max 0", "t_max is 0, but must be at least 1"),
    (f"{CARTPOLE} --tasks pc", "pc needs image observations"),
    (
        f"{CARTPOLE} --tasks strict_plugin:Strict --task strict.units=3",
        "'strict' does not accept its options: units is 3; choose",
    ),
    (f"{CARTPOLE} --tasks strict_plugin:Strict --task strict.replays=0", "'strict' has replays = 0; use an int of 1"),
    (
        f"{CARTPOLE} --tasks strict_plugin:Strict --task strict.updates=2 --objective a3c",
        "task 'strict' has updates = 2, but a3c uses a batch once; set updates to 1, or use --objective ppo",
    ),
    (f"{CARTPOLE} --emulator own", "emulator has no effect on CartPole-v1; leave it out or choose an Atari game"),
    (f"{CARTPOLE} --frame_size 64", "frame_size has no effect on CartPole-v1, which has no images; leave it out"),
    (f"{CARTPOLE} --scheduler_seconds 5", "scheduler_seconds has no effect without the scheduler; leave it out or add"),
    (f"{CARTPOLE} {PHASIC} --trainers 2", "phasic has a further phase of updates, for one trainer on one node"),
    (f"{CARTPOLE} {PHASIC} --scheduler queue", "for one trainer on one node; leave out more, and --scheduler"),
    (f"{CARTPOLE} --runner cluster --sync off --quorum 0.5", "quorum has no effect with --sync off; leave it out or"),
    (f"{CARTPOLE} --runner cluster --warmup 9", "warmup has no effect without --rate_scaling; leave it out or add"),
    (f"{CARTPOLE} --replay_fill full", "replay_fill has no effect without tasks; leave it out or add --tasks"),
    (f"{CARTPOLE} --tasks rp --t_max 1 --replay_size 2", "is below the 3 steps of a sequence of task 'rp'; use"),
    (f"{CARTPOLE} --logdir a_file/runs", "choose another folder with --logdir"),
    (f"{LARGE} --runner serial --tasks vr", "2,048 MiB leaves no room for 8 agents: the server takes"),
    (
        f"{LARGE} --agents_per_process 8 --tasks vr",
        "raise --memory_limit, or lower --agents_per_process, --min_batch, --replay_size or the",
    ),
    ("--env scripted_env:Numbered --env_args states=1000000 --memory_limit 4GiB", "of an observation (3,906 KiB)"),
    ("--env scripted_env:Numbered --env_args states=2147483648 --runner serial", "an observation of scripted_env:Num"),
    ("--resume none_such", "run 'none_such' not found"),
    (f"{CARTPOLE} --network small --name x", "the small network needs images, not vectors of 4; use --network mlp"),
]
BOTH = "compare base=base-s? tasks=tasks-s? --logdir {runs}"
OTHERS = [  # of other commands; {run} has been trained, and {runs} is a folder of runs without checkpoints
    ("trian", f"unknown command 'trian'; {MEAN} train?"),
    ("xyz", "unknown command 'xyz'; use one of train, "),
    ("resume --steps 9", "name the run first"),
    ("resume", "name the run first, as in gunreal resume NAME"),
    ("envs Pong", "unexpected argument 'Pong'"),
    ("tasks --evn Pong", f"unknown flag --evn; {MEAN} --env?"),
    ("evaluate", "the following arguments are required: RUN; use --help to list all arguments"),
    ("evaluate {run} --helpfull", f"unrecognized arguments: --helpfull; {MEAN} --help?"),
    ("plot", "the following arguments are required: RUN; use --help to list all arguments"),
    ("plot a --smooth x", "argument --smooth: invalid int value: 'x'; use --help"),
    ("export a", "the following arguments are required: FILE"),
    ("export a b.onnx --check best", f"arguments: --check best; {MEAN} --checkpoint?"),
    ("runs --jsn", f"unrecognized arguments: --jsn; {MEAN} --json?"),
    ("doctor --seconds -1", "--seconds is -1, but must be from 0 to 3600"),
    ("runs extra", "unrecognized arguments: extra; use --help to list all arguments"),
    ("sweep tiny.toml --steps 0", "steps is 0"),
    ("sweep --steps 300 tiny.toml", "name the file first, as in gunreal sweep FILE --steps ..."),
    ("sweep tiny.toml --envs CartPole-v1,", "envs is ['CartPole-v1', ''], but must be a list of environments"),
    ("sweep tiny.toml --sedes 3", "unknown flag --sedes"),
    ("sweep tiny.toml --seed 3", "write seeds = 3"),
    ("sweep tiny.toml --resume x", "--resume cannot be used here"),
    ("sweep tiny.toml --env gunreal/Katch-v0", "base-s1: "),
    ("sweep tiny.toml --task vr.wait=2", "vr-s1: "),
    ("tasks --env None-v0", "unknown environment 'None-v0'"),
    ("runs --logdir none", "folder 'none' not found; check --logdir"),
    ("check", "the following arguments are required: CLASS"),
    ("check vr weigth=3", "task 'vr' has no option 'weigth'"),
    ("check vr weight", "'weight' is not of the form key=value, as in units=32"),
    ("check nope", "unknown task 'nope'"),
    ("check vr --network nope", "unknown network 'nope'"),
    ("check impala --network lstm", "--network is for tasks; leave it out"),
    ("compare nothing", "run 'nothing' not found"),
    (f"compare {300 * 'x'}", "not found"),
    (f"{BOTH} --steps 0", "argument --steps: 0 is below 1"),
    (f"plot a={300 * 'x'}", "no run matches"),
    ("compare base=nothing-*", "no run matches"),
    (f"{BOTH} --reference bse", f"no setting is called bse; {MEAN} base?"),
    (f"{BOTH} --steps x", "'x' is not a whole number"),
    (f"{BOTH} --steps 900", "has taken 100 steps"),
    (f"{BOTH} --json --markdown", "not allowed with"),
    ("plot none", "run 'none' not found"),
    ("plot b=none*", "no run matches 'none*'"),
    ("plot {runs}/base-s1 --y score", "no values of score over step; it has score_mean, seconds, step"),
    ("plot {runs}/base-s1 --smooth 2", "odd number"),
    ("plot {runs}/base-s1 --group [", "not a regular expression"),
    ("plot {runs}/base-s1 --out none/a.png", "a.png; choose a file in an existing, writable folder"),
    ("plot {runs}/base-s1 --out a.abc", "abc"),
    ("plot {runs}/base-s1 --out a", "'a' has no suffix, which names the format of the picture; write FILE.png"),
    ("export {run} policy.pt", "write FILE.keras"),
    ("export none a.keras", "run 'none' not found"),
    ("evaluate {run} other", "unrecognized arguments: other; use --help"),
    ("evaluate catsh --logdir {run}/..", f"{MEAN} catch"),
    ("evaluate {runs}/base-s1", "base-s1 has no checkpoint yet; wait for the first one, or resume the run"),
    ("evaluate {run} --episode 3", f"unrecognized arguments: --episode 3; {MEAN} --episodes?"),
    ("evaluate {run} --episodes 0", "argument --episodes: 0 is below 1; use --help"),
    ("evaluate {run} --episodes x", "argument --episodes: 'x' is not a whole number"),
    ("evaluate {run} --seed -1", "argument --seed: -1 is below 0"),
    ("evaluate {run} --policy best", "argument --policy: invalid choice: 'best' (choose from"),
    ("evaluate {run} --protocol v5", "leave it out"),
    ("evaluate {run} --checkpoint step_9.npz", "no checkpoint step_9.npz; available: best, "),
    ("evaluate {run} --video film.avi", "FILE.mp4"),
    ("evaluate {run} --video none/film.mp4", "cannot write the video"),
]
NEEDS = {"plot": "matplotlib.font_manager", "--video": "imageio_ffmpeg"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name in ("base-s1", "base-s2", "tasks-s1", "tasks-s2"):
        make_run(folder, name, [None, 1])
    return folder


def run(words):
    if words.startswith("train "):  # the command would end the process
        return train(words.split())
    return command(["gunreal", *words.split()])


@pytest.mark.parametrize(("words", "message"), [*((f"train {flags}", message) for flags, message in BAD), *OTHERS])
def test_bad_input(tmp_path, tmp_path_factory, runs, monkeypatch, capfd, words, message):
    """One line that says what to mend, exit code 2, and nothing is left."""
    for package in (package for word, package in NEEDS.items() if word in words.split()):
        pytest.importorskip(package)
    words = words.format(runs=runs, run=catch_run(tmp_path_factory.getbasetemp()) if "{run}" in words else "")
    capfd.readouterr()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (TOML | PLUGINS).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "a_file").touch()
    assert run(words) == 2
    out, err = capfd.readouterr()
    # The process in which a sweep checks its runs may be slow.
    err = "".join(line for line in err.splitlines(keepends=True) if "still waiting for" not in line)
    assert err.startswith("gunreal: ") and err.count("\n") == 1 and message in err
    assert out == "" or words.startswith("sweep ") and out.endswith(" checking 2 configurations\n")
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if "__pycache__" not in path.parts}
    assert left - ({"runs"} if words.startswith("sweep ") else set()) == {*TOML, *PLUGINS, "a_file"}


def test_a_network_that_breaks_a_rule_is_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert run(f"train {CATCH} --network networks:Normalized --name x") == 2
    err = capfd.readouterr().err
    assert "gunreal: torso/1 has untrained state" in err and "Traceback" not in err
    assert not (tmp_path / "runs" / "x").exists()
