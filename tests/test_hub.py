"""A run that goes to the Hub and comes back, with a folder in the place of the Hub. Nothing is sent anywhere."""

from __future__ import annotations

import dataclasses
import json
import pickletools
import shutil
import sys
import zipfile
from types import SimpleNamespace

import pytest
from trained import catch_run

import gunreal
from gunreal.__main__ import main as command
from gunreal.config.files import load, save
from gunreal.config.flags import from_flags
from gunreal.config.schema import Config
from gunreal.records import checkpoint

hub = pytest.importorskip("huggingface_hub")
errors = pytest.importorskip("huggingface_hub.errors")
pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return gunreal.load(catch_run(tmp_path_factory.getbasetemp()))


@pytest.fixture
def asked():
    """What the Hub was last asked for."""
    return {}


@pytest.fixture
def repositories(tmp_path, monkeypatch, asked):
    """The Hub as a folder."""
    root = tmp_path / "hub"

    class Api:
        def __init__(self, token=None):
            self.token = token

        def create_repo(self, repo_id, *, private, exist_ok):
            assert exist_ok and self.token == "secret"
            asked["private"] = private
            (root / repo_id).mkdir(parents=True, exist_ok=True)
            return f"https://huggingface.co/{repo_id}"

        def upload_folder(self, *, repo_id, folder_path, commit_message, delete_patterns=None):
            for path in (root / repo_id).glob(delete_patterns) if delete_patterns else ():
                path.unlink()
            shutil.copytree(folder_path, root / repo_id, dirs_exist_ok=True)

    def download(repo_id, *, revision, token, allow_patterns):
        target = tmp_path / "cache" / (revision or "newest")
        asked["token"] = token
        ignored = shutil.ignore_patterns("*.py", "*.pkl")
        assert "config.toml" in allow_patterns and not any(x in ("*", "**") for x in allow_patterns)
        return str(shutil.copytree(root / repo_id, target, ignore=ignored, dirs_exist_ok=True))

    monkeypatch.setattr(hub, "HfApi", Api)
    monkeypatch.setattr(hub, "snapshot_download", download)
    return root


def test_there_and_back(run, repositories, asked):
    address = gunreal.push_to_hub(run, "me/catch", episodes=4, private=True, token="secret", seed=5)
    assert address == "https://huggingface.co/me/catch"
    loaded = gunreal.load_from_hub("me/catch", revision="abc", token="mine")
    assert loaded.path.name == "abc" and asked == {"private": True, "token": "mine"}
    assert (
        checkpoint.weights_sha256(loaded.learner.get_state()) == checkpoint.weights_sha256(run.learner.get_state())
        and loaded.step == run.step
    )
    assert loaded.metrics == run.metrics and loaded.spec == run.spec
    scores = json.loads((loaded.path / "scores.json").read_text())
    assert scores["scores"] == run.evaluate(4, seed=5).tolist()
    with pytest.raises(gunreal.ConfigError, match=f"lacks the agents .* start a new run with --init {loaded.path}$"):
        gunreal.resume(loaded, steps=800, show=False)


def test_there_and_back_by_commands(run, repositories, asked, tmp_path, monkeypatch, capsys):
    """The downloaded run is found by its name, as one that was trained here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "secret")
    words = [str(run.path), "me/catch", "--episodes", "2", "--policy", "argmax", "--private"]
    assert command(["gunreal", "push", *words]) == 0
    assert command(["gunreal", "pull", "me/catch", "--revision", "abc", "--name", "mine"]) == 0
    assert capsys.readouterr().out == "https://huggingface.co/me/catch\nruns/mine\n" and asked["private"]
    scores = json.loads((tmp_path / "runs" / "mine" / "scores.json").read_text())
    assert scores["scores"] == run.evaluate(2, sample=False).tolist()
    assert not any(path.is_symlink() for path in (tmp_path / "runs").rglob("*"))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"]
    assert command(["gunreal", "evaluate", "mine", "--episodes", "2", "--policy", "argmax", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean"] == scores["mean"]


def test_the_files_of_an_upload_may_be_looked_at_first(run, repositories, tmp_path, capsys):
    out = tmp_path / "card"
    assert command(["gunreal", "push", str(run.path), "me/catch", "--episodes", "1", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n" and not repositories.exists()
    assert "# catch" in (out / "README.md").read_text() and gunreal.load(out).step == run.step


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("push {run}", "the following arguments are required: USER/NAME"),
        ("push none me/catch", "run 'none' not found"),
        ("push {run} catch", "'catch' lacks the user of the repository; write USER/catch"),
        ("push {run} me/c!", "Hugging Face Hub: Repo id must use alphanumeric chars"),
        ("push {run} me/catch", "the Hub needs an access token; log in with hf auth login"),
        ("push {run} me/catch --episodes 0", "argument --episodes: 0 is below 1"),
        ("push {run} me/catch --checkpoint 7", "no checkpoint 7; available: "),
        ("push {run} me/catch --out {run}", "choose another --out"),
        ("pull catch", "write USER/catch"),
        ("pull you/model", "you/model is no run of gunreal, because it has no config.toml"),
        ("pull you/maze", "you/maze uses mine:make"),
        ("pull me/catch --name ../up", "'../up' is not a folder name"),
        ("pull me/{name} --logdir {logdir}", "exists already; choose another --name"),
    ],
)
def test_a_command_is_refused_in_one_line(run, repositories, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.setattr(hub, "get_token", lambda: None)
    monkeypatch.chdir(tmp_path)
    for name in ("model", "maze"):
        (repositories / "you" / name).mkdir(parents=True)
    save(Config(env="mine:make"), repositories / "you" / "maze" / "config.toml")
    filled = words.format(run=run.path, name=run.path.name, logdir=run.path.parent)
    assert command(["gunreal", *filled.split()]) == 2
    err = capsys.readouterr().err
    assert err.startswith("gunreal: ") and err.count("\n") == 1 and message in err
    assert not (tmp_path / "runs").exists() and not (repositories / "me").exists()


def test_the_checkpoint_that_was_loaded_is_uploaded_with_its_score(run, repositories, tmp_path):
    """It replaces a later one of an earlier upload, because the newest one is loaded."""
    folder = shutil.copytree(run.path, tmp_path / "run")
    saved = checkpoint.load(folder)
    for step, score in ((run.step, 9.0), (run.step + 100, None)):
        checkpoint.save(folder, step, saved.state, saved.extra, score=score)
    checkpoint.save(repositories / "me" / "catch", run.step + 100, saved.learned(), saved.extra)
    gunreal.push_to_hub(gunreal.load(folder, "best"), "me/catch", episodes=1, token="secret")
    uploaded = checkpoint.load(repositories / "me" / "catch")
    assert (uploaded.step, uploaded.score) == (run.step, 9.0)


def test_the_card_holds_the_scores_the_curve_and_the_command(run, repositories):
    gunreal.push_to_hub(run, "me/catch", episodes=4, token="secret", seed=5)
    folder = repositories / "me" / "catch"
    card, mean = hub.ModelCard.load(folder / "README.md"), run.evaluate(4, seed=5).mean()
    (result,) = card.data.eval_results
    assert result.metric_value.startswith(f"{mean:.2f} +/- ") and result.dataset_name == "gunreal/Catch-v0"
    assert f"| {mean:.2f} |" in card.text and "](curve.png)" in card.text
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "gunreal pull me/catch\n" in card.text
    assert "gunreal train --config runs/catch/config.toml --name again" in card.text
    again, _ = from_flags(["train", "--config", str(folder / "config.toml"), "--logdir", run.config.logdir])
    assert again == run.config
    assert 'gunreal.load_from_hub("me/catch")' in card.text


def test_what_is_uploaded_is_data(run, repositories):
    """No pickle, no replay of this serial run, and no path or address of this machine."""
    own = {"init": str(run.path.parent / "first"), "address": "host:6379"}
    begun = gunreal.Run(run.path, dataclasses.replace(run.config, **own))
    gunreal.push_to_hub(begun, "me/catch", episodes=1, token="secret")
    folder = repositories / "me" / "catch"
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    (weights,) = (name for name in files if name.endswith(".npz") and "step_" in name)
    text = {"README.md", "config.toml", "spec.json", "metrics.jsonl", "scores.json"}
    assert files - {"checkpoints/best.npz"} == text | {"curve.png", weights}
    saved = checkpoint.load(folder)
    assert saved.blobs == {} and not any(name.startswith("ring") for name in saved.state)
    assert saved.extra["config"]["logdir"] == load(folder / "config.toml")["logdir"] == "runs"
    with zipfile.ZipFile(folder / weights) as archive:
        for name in archive.namelist():
            with pytest.raises(ValueError):
                list(pickletools.genops(archive.read(name)))
    own_text = (str(run.path.parent), "host:6379")
    assert not any(word in (folder / name).read_text() for name in text for word in own_text)


@pytest.mark.parametrize(
    "named", [{"env": "mine:make"}, {"network": "mine:Net"}, {"objective": "mine:Rule"}, {"tasks": ("mine:Task",)}]
)
def test_a_run_that_names_modules_has_to_be_trusted(repositories, named):
    (repositories / "you" / "maze").mkdir(parents=True)
    save(Config(**named), repositories / "you" / "maze" / "config.toml")
    with pytest.raises(gunreal.ConfigError, match="you/maze uses mine:.*, which runs code.*trust=True, or --trust"):
        gunreal.load_from_hub("you/maze")
    assert gunreal.load_from_hub("you/maze", trust=True).config == Config(**named)


def test_a_pulled_run_names_no_machine_of_its_author(repositories, tmp_path, monkeypatch):
    (repositories / "you" / "far").mkdir(parents=True)
    theirs = {"address": "host:6379", "init": "/theirs", "track": "wandb"}
    save(Config(runner="cluster", **theirs), repositories / "you" / "far" / "config.toml")
    monkeypatch.chdir(tmp_path)
    assert command(["gunreal", "pull", "you/far"]) == 0
    config = load(tmp_path / "runs" / "far" / "config.toml")
    assert {name: config[name] for name in theirs} == {"address": "", "init": "", "track": "off"}


def refusal(status):
    response = SimpleNamespace(headers={}, request=None, status_code=status)
    return errors.HfHubHTTPError(f"{status} Error.\n\nRefused", response=response)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (refusal(401), "401 Error. Refused; log in with hf auth login"),
        (refusal(403), "403 Error. Refused; log in with hf auth login"),
        (refusal(404), "404 Error. Refused; check the name and revision of the repository"),
        (refusal(500), "500 Error. Refused"),
        (errors.LocalTokenNotFoundError("no token"), "no token; log in with hf auth login"),
        (errors.HFValidationError("Repo id is wrong"), "Repo id is wrong"),
        (errors.LocalEntryNotFoundError("Check your\nconnection"), "Check your connection"),
        (errors.HTTPError("Connection refused"), "Connection refused; check the network"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, Exception) else "",
)
def test_a_refusal_is_one_line(monkeypatch, error, message):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    with pytest.raises(gunreal.ConfigError) as found:
        gunreal.load_from_hub("me/none")
    assert str(found.value) == f"Hugging Face Hub: {message}"


def test_a_refused_repository_plays_no_episodes(run, monkeypatch):
    class Api:
        def __init__(self, token=None):
            pass

        def create_repo(self, *_, **__):
            raise refusal(401)

    def play(*_, **__):
        yield pytest.fail("an episode was played")

    monkeypatch.setattr(hub, "HfApi", Api)
    monkeypatch.setattr(gunreal.hub, "play", play)
    with pytest.raises(gunreal.ConfigError, match="log in with hf auth login"):
        gunreal.push_to_hub(run, "me/catch", token="secret")


def test_what_cannot_be_uploaded_creates_no_repository(run, repositories, monkeypatch):
    for options in ({"episodes": 0}, {"episodes": 1, "speed": 2}):
        with pytest.raises((ValueError, TypeError), match="cannot play 0 episodes|speed"):
            gunreal.push_to_hub(run, "me/catch", token="secret", **options)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(gunreal.ConfigError, match="pictures need matplotlib"):
        gunreal.push_to_hub(run, "me/catch", episodes=1, token="secret")
    assert not repositories.exists()


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(gunreal.ConfigError, match=r'huggingface_hub; run pip install "gunreal\[hub\]"$'):
        gunreal.load_from_hub("me/catch")
