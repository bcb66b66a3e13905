"""Runs on the Hugging Face Hub: `gunreal.push_to_hub`, `gunreal.load_from_hub`, `gunreal push` and `gunreal pull`.

An upload contains numbers, text and a picture only: no pickles, no code and no replay. It does not name the folders of
this machine, but for those in options of environments and tasks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gunreal.acting.episodes import Episode, play, summarize
from gunreal.config import folders
from gunreal.config.arguments import Arguments, at_least
from gunreal.config.checks import check
from gunreal.config.files import save
from gunreal.config.packages import package
from gunreal.config.schema import Config, ConfigError
from gunreal.config.values import one_line
from gunreal.records import card, checkpoint, curves, interface, metrics
from gunreal.run import Run, load

_PUSH = "Uploads a run with a model card to the Hugging Face Hub. Log in once with hf auth login."
_PULL = "Downloads a run from the Hugging Face Hub to the folder of runs, where all commands find it."
_CARD = "README.md"
_FILES = [folders.CONFIG, interface.FILE, metrics.FILE, "checkpoints/*.npz", card.CURVE, card.SCORES, _CARD]


def push_to_hub(
    run: Run, repo_id: str, *, episodes: int = 30, private: bool = False, token: str | None = None, **options: Any
) -> str:
    """Uploads a run with a model card to the Hugging Face Hub. Needs `pip install "gunreal[hub,plot]"`.

    The card contains the scores of new episodes, the learning curve, and the command that trains such a policy. The
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
      ConfigError: a package or the token is missing, the Hub cannot be reached or refuses the upload, or as
        `Run.actor_critic`.
      FileNotFoundError: there is no intact checkpoint.
      ValueError: there are no episodes to play.
    """
    curves.check_matplotlib()
    _hub(repo_id)
    # A run that cannot be loaded, or options that do not fit, need no repository. Nothing is played yet.
    played = play(run.actor_critic, run.config, run.spec, episodes, **options)

    def fill(folder: Path) -> None:
        store(run, folder)
        score(folder, repo_id, played)

    return upload(repo_id, fill, f"{run.path.name} at step {run.step}", private=private, token=token)


def upload(
    repo_id: str, fill: Callable[[Path], object], message: str, *, private: bool = False, token: str | None = None
) -> str:
    """Uploads a folder that `fill` writes to. Returns the address. Raises ConfigError as `push_to_hub`."""
    hub = _hub(repo_id)
    if not (token := token or hub.get_token()):
        raise ConfigError("the Hub needs an access token; log in with hf auth login, or set HF_TOKEN")
    api = hub.HfApi(token=token)
    with _refusals(hub):
        address = api.create_repo(repo_id, private=private, exist_ok=True)  # before the episodes, which take long
    with tempfile.TemporaryDirectory(prefix="gunreal-hub-") as folder:
        fill(Path(folder))
        # A later checkpoint of an earlier upload would be the newest one, which is loaded.
        with _refusals(hub):
            api.upload_folder(
                repo_id=repo_id, folder_path=folder, commit_message=message, delete_patterns="checkpoints/*"
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
      The run, as `gunreal.load` returns it, in the Hub's cache. `gunreal pull` downloads it as a run of its own, which
      can be resumed if it is a parallel run. Serial and device runs are uploaded without their agents and cannot be
      resumed. Start a new run from one of them with `--init`.

    Raises:
      ConfigError: the package is missing, the Hub cannot be reached, there is no such run, or it names modules and is
        not trusted.
    """
    hub = _hub(repo_id)
    with _refusals(hub):
        folder = Path(hub.snapshot_download(repo_id, revision=revision, token=token, allow_patterns=_FILES))
    if not (folder / folders.CONFIG).is_file():
        raise ConfigError(f"{repo_id} is no run of gunreal, because it has no {folders.CONFIG}; check the name")
    config = folders.saved_config(folder)
    named = [name for name in (config.env, config.network, config.objective, *config.tasks) if ":" in name]
    if named and not trust:
        raise ConfigError(
            f"{repo_id} uses {', '.join(named)}, which runs code of these modules; if you know them, pass trust=True, "
            "or --trust to gunreal pull"
        )
    return load(folder)


def store(run: Run, folder: Path, policy: Mapping[str, np.ndarray] | None = None) -> None:
    """Writes a run to an empty folder, as it is shared.

    The state `policy`, if it is given, takes the place of the checkpoint's. It does not count as the best one.
    """
    config = _of_nobody(run.config)
    save(config, folder / folders.CONFIG)
    for name in (interface.FILE, metrics.FILE):
        if (run.path / name).exists():
            shutil.copyfile(run.path / name, folder / name)
    saved = checkpoint.load(run.path, run.checkpoint)
    state, best = (saved.learned(), saved.score) if policy is None else (policy, None)
    extra = saved.extra | {"config": dataclasses.asdict(config)}
    checkpoint.save(folder, saved.step, state, extra, score=best)
    with contextlib.suppress(ConfigError):  # no episode had ended by a line of metrics
        run.plot(folder / card.CURVE)


def _of_nobody(config: Config) -> Config:
    """The configuration without the folders, machines and accounts of whoever has trained the run."""
    return dataclasses.replace(config, **{name: getattr(Config, name) for name in card.PRIVATE if name != "name"})


def score(folder: Path, source: str, played: Iterable[Episode]) -> None:
    """Plays the episodes, and writes their scores and the card (`card.text`) to a folder that `store` has written."""
    (folder / card.SCORES).write_text(json.dumps(summarize(list(played)), indent=1) + "\n")
    describe(folder, source)


def describe(folder: Path, source: str) -> None:
    """Writes the model card of a folder that has all other files."""
    (folder / _CARD).write_text(card.text(folder, source))


def main(command: str, argv: Sequence[str]) -> int:
    """Runs "push" or "pull". Returns the exit code."""
    print(_push(argv) if command == "push" else _pull(argv))
    return 0


def push_arguments(program: str) -> Arguments:
    """The command line of `gunreal push`."""
    parser = Arguments(program, _PUSH)
    parser.add_run(policy=True)
    add = parser.add_argument
    add("repo_id", metavar="USER/NAME", help="repository, which is created if it does not exist")
    episodes = "number of episodes to play for the card's scores (default: 30)"
    add("--episodes", type=at_least(1), default=30, metavar="N", help=episodes)
    add("--private", action="store_true", help="make a new repository private")
    add("--out", type=Path, metavar="FOLDER", help="write the files to this new folder, and upload nothing")
    return parser


def pull_arguments(program: str) -> Arguments:
    """The command line of `gunreal pull`."""
    parser = Arguments(program, _PULL)
    add = parser.add_argument
    add("repo_id", metavar="USER/NAME", help="repository")
    add("--name", default="", help="name of the run (default: that of the repository)")
    add("--revision", help="branch, tag or commit (default: the newest)")
    add("--trust", action="store_true", help="accept a run that names modules, whose code it would run")
    add("--logdir", default=Config.logdir, help=f"folder of runs (default: {Config.logdir})")
    return parser


def _push(argv: Sequence[str]) -> str:
    """Returns the address of the repository, or the folder that was written."""
    given = push_arguments(argv[0]).parse_args(argv[1:])
    run = load(folders.find(given.run, given.logdir), given.checkpoint)
    options: dict[str, Any] = {"episodes": given.episodes, "sample": given.policy == "sample"}
    if not given.out:
        return push_to_hub(run, given.repo_id, private=given.private, **options)
    _hub(given.repo_id)
    curves.check_matplotlib()
    played = play(run.actor_critic, run.config, run.spec, **options)
    try:
        given.out.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {given.out}: {error.strerror}; choose another --out") from error
    store(run, given.out)
    score(given.out, given.repo_id, played)
    return str(given.out)


def _pull(argv: Sequence[str]) -> str:
    """Returns the folder of the run."""
    given = pull_arguments(argv[0]).parse_args(argv[1:])
    _hub(given.repo_id)
    name = given.name or given.repo_id.split("/")[-1]
    check(Config(name=name, logdir=given.logdir))
    path = folders.expanded(given.logdir) / name
    if os.path.lexists(path):
        raise ConfigError(f"{path} exists already; choose another --name")
    source = load_from_hub(given.repo_id, revision=given.revision, trust=given.trust).path
    with folders.writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=path.parent) as folder:
            copy = Path(folder, name)
            for file in (file for pattern in _FILES for file in source.glob(pattern)):
                target = copy / file.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)  # what a link in the cache points to
            save(_of_nobody(folders.saved_config(copy)), copy / folders.CONFIG)
            copy.rename(path)
    return str(path)


def _hub(repo_id: str) -> Any:
    """The package. Raises ConfigError if it is not installed, or if the name of the repository is none."""
    package("huggingface_hub", 'the Hub needs the package huggingface_hub; run pip install "gunreal[hub]"')
    import huggingface_hub.errors

    hub: Any = huggingface_hub
    with _refusals(hub):
        hub.utils.validate_repo_id(repo_id)
    if "/" not in repo_id:
        raise ConfigError(f"{repo_id!r} lacks the user of the repository; write USER/{repo_id}")
    return hub


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
