"""Runs on the Hugging Face Hub: `gunreal.push_to_hub` and `gunreal.load_from_hub`.

An upload contains numbers, text and a picture only: no pickles, no code, no replay, and no path of this machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gunreal.acting.episodes import Episode, play, summarize
from gunreal.config import folders
from gunreal.config.files import save
from gunreal.config.packages import package
from gunreal.config.schema import Config, ConfigError
from gunreal.config.values import one_line
from gunreal.records import card, checkpoint, curves, interface, metrics
from gunreal.run import Run, load

_CURVE, _SCORES = "curve.png", "scores.json"
_FILES = [folders.CONFIG, interface.FILE, metrics.FILE, "checkpoints/*.npz", _CURVE, _SCORES, "README.md"]


def push_to_hub(
    run: Run, repo_id: str, *, episodes: int = 30, private: bool = False, token: str | None = None, **options: Any
) -> str:
    """Uploads a run with a model card to the Hugging Face Hub. Needs `pip install "gunreal[hub,plot]"`.

    The card contains the scores of new episodes, the learning curve, and the commands that train such a policy. The
    upload contains the configuration, the metrics and the run's checkpoint without replay. The repository is created if
    it does not exist.

    Args:
      run: the run. `gunreal.load(path, "best")` takes its best checkpoint.
      repo_id: name of the repository, such as "user/pong".
      episodes: number of episodes to play for the scores.
      private: whether a new repository is private.
      token: access token. The default is the one of `hf auth login`.
      **options: as in `Run.evaluate`, such as `seed`.

    Returns:
      The address of the repository.

    Raises:
      ConfigError: a package is missing, the Hub cannot be reached or refuses the upload, or as `Run.actor_critic`.
      FileNotFoundError: there is no intact checkpoint.
      ValueError: there are no episodes to play.
    """
    hub = _hub()
    curves.check_matplotlib()
    # A run that cannot be loaded, or options that do not fit, need no repository. Nothing is played yet.
    played = play(run.actor_critic, run.config, run.spec, episodes, **options)
    api = hub.HfApi(token=token)
    with _refusals(hub):
        address = api.create_repo(repo_id, private=private, exist_ok=True)  # before the episodes, which take long
    with tempfile.TemporaryDirectory(prefix="gunreal-hub-") as folder:
        write(run, Path(folder), repo_id, played)
        # A later checkpoint of an earlier upload would be the newest one, which is loaded.
        with _refusals(hub):
            api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                commit_message=f"{run.path.name} at step {run.step}",
                delete_patterns="checkpoints/*",
            )
    return str(address)


def load_from_hub(repo_id: str, *, revision: str | None = None, token: str | None = None, trust: bool = False) -> Run:
    """Downloads a run from the Hugging Face Hub. Needs `pip install "gunreal[hub]"`.

    Nothing in the download is executed. However, a configuration may name functions of modules that are installed here,
    as in `env = "module:function"`, and the run would call them.

    Args:
      repo_id: name of the repository, such as "user/pong".
      revision: branch, tag or commit. The default is the newest.
      token: access token for a private repository.
      trust: whether a run may name modules. Look at its `config.toml` first.

    Returns:
      The run, as `gunreal.load` returns it. To resume a parallel run, copy its folder first. Serial and device runs are
      uploaded without their agents and cannot be resumed. Start a new run from one of them with `--init`.

    Raises:
      ConfigError: the package is missing, the Hub cannot be reached, there is no such run, or it names modules and is
        not trusted.
    """
    hub = _hub()
    with _refusals(hub):
        folder = Path(hub.snapshot_download(repo_id, revision=revision, token=token, allow_patterns=_FILES))
    config = folders.saved_config(folder)
    named = [name for name in (config.env, config.network, *config.tasks) if ":" in name]
    if named and not trust:
        raise ConfigError(
            f"{repo_id} uses {', '.join(named)}, which runs code of these modules; if you know them, pass trust=True"
        )
    return load(folder)


def write(run: Run, folder: Path, repo_id: str, played: Iterator[Episode]) -> None:
    """Plays the episodes, and writes what `push_to_hub` uploads to an empty folder."""
    # The folders, machines and accounts of the run are nobody else's.
    config = dataclasses.replace(
        run.config, **{name: getattr(Config, name) for name in ("logdir", "init", "address", "track")}
    )
    scores = summarize(list(played))
    save(config, folder / folders.CONFIG)
    for name in (interface.FILE, metrics.FILE):
        if (run.path / name).exists():
            shutil.copyfile(run.path / name, folder / name)
    saved = checkpoint.load(run.path, run.checkpoint)
    weights = saved.learned()
    extra = saved.extra | {"config": dataclasses.asdict(config)}
    checkpoint.save(folder, saved.step, weights, extra, score=saved.score)
    (folder / _SCORES).write_text(json.dumps(scores, indent=1) + "\n")
    with contextlib.suppress(ConfigError):  # no episode had ended by a line of metrics
        run.plot(folder / _CURVE)
    text = card.text(config, repo_id, run.step, scores, _CURVE if (folder / _CURVE).exists() else None)
    (folder / "README.md").write_text(text)


def _hub() -> Any:
    package("huggingface_hub", 'the Hub needs the package huggingface_hub; run pip install "gunreal[hub]"')
    import huggingface_hub.errors

    return huggingface_hub


@contextlib.contextmanager
def _refusals(hub: Any) -> Iterator[None]:
    """Turns errors of the Hub and of the connection into one line."""
    try:
        yield
    except (hub.errors.HTTPError, hub.errors.HFValidationError, OSError) as error:
        text = one_line(str(error)) or type(error).__name__
        raise ConfigError(f"Hugging Face Hub: {text}{_remedy(hub, error)}") from error


def _remedy(hub: Any, error: Exception) -> str:
    """What to do about an error whose message does not say it, or an empty string."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403) or isinstance(error, hub.errors.LocalTokenNotFoundError):
        return "; log in with hf auth login"
    if status == 404:
        return "; check the name and revision of the repository"
    # The HTTP client's own errors have no response if there was no connection.
    return "; check the network" if status is None and isinstance(error, hub.errors.HTTPError) else ""
