"""Adds a finished run to the zoo, writes the model cards again, or uploads all agents to the Hugging Face Hub.

An agent is a folder in `zoo/gunreal_zoo`: the policy, in half precision if that leaves the score as it is, and a model
card. `gunreal zoo` and the page Benchmark list all agents.
"""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gunreal import hub
from gunreal.acting.episodes import play, summarize
from gunreal.config import files, folders
from gunreal.config.arguments import Arguments
from gunreal.config.schema import FIELDS, Config, ConfigError
from gunreal.envs.step import AgentFailure
from gunreal.records import card, metrics
from gunreal.run import Run, load

ROOT = Path(__file__).parents[1] / "zoo" / "gunreal_zoo"
_LINES = 200  # of metrics, which are enough for a curve


def add(run: Run, name: str, episodes: int) -> str:
    """Plays episodes with a run and with its weights in half precision, and adds the run. Returns a line about both.

    Raises:
      ConfigError: there is an agent of this name, or the command of the card would not train such a run.
    """
    if (ROOT / name).exists():
        raise ConfigError(f"{ROOT / name} exists already; remove it, or choose another NAME")
    if run.config.init:
        raise ConfigError(f"{run.path} began with the weights of another run; train it without --init")
    state = {key: value for key, value in run.actor_critic.get_state().items() if not key.startswith("optimizer/")}
    half = {key: value.astype(np.float16) if key.startswith("weights/") else value for key, value in state.items()}
    before = summarize(list(play(run.actor_critic, run.config, run.spec, episodes)))
    with tempfile.TemporaryDirectory() as parent:
        for policy in (half, state):
            folder = Path(parent) / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            hub.store(run, folder, policy)
            stored = load(folder)
            hub.score(folder, f"{folders.ZOO}{name}", play(stored.actor_critic, stored.config, stored.spec, episodes))
            scores = card.read(folder).scores
            error = math.hypot(before["std"], scores["std"]) / math.sqrt(episodes)
            if abs(before["mean"] - scores["mean"]) <= 2 * error:
                break
        thin(folder / metrics.FILE)
        shutil.move(folder, ROOT / name)
    size = sum(file.stat().st_size for file in (ROOT / name).rglob("*") if file.is_file()) / 1e6
    kind = "float16" if policy is half else "float32"
    return f"{name}: {before['mean']:.2f} before, {scores['mean']:.2f} as {kind}, {size:.1f} MB"


def thin(file: Path) -> None:
    """Keeps some of the lines of metrics, and the last."""
    if file.exists():
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(lines[:: -math.ceil(len(lines) / _LINES) or -1][::-1]))


def renew() -> None:
    """Writes all model cards again, and gives settings that are new in `Config` their defaults."""
    for name, folder in folders.zoo().items():
        known = {key: value for key, value in files.parsed(folder / folders.CONFIG).items() if key in FIELDS}
        files.save(Config(**known), folder / folders.CONFIG)
        hub.describe(folder, f"{folders.ZOO}{name}")


def push(user: str, private: bool) -> None:
    """Uploads all agents, as USER/gunreal-NAME."""
    for name, agent in folders.zoo().items():

        def fill(folder: Path, agent: Path = agent, repo_id: str = f"{user}/gunreal-{name}") -> None:
            shutil.copytree(agent, folder, dirs_exist_ok=True)
            hub.describe(folder, repo_id)

        print(hub.upload(f"{user}/gunreal-{name}", fill, f"{name} of the zoo", private=private))


def _parser() -> Arguments:
    parser = Arguments("zoo.py", __doc__)
    commands: Any = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add", description="Adds a finished run.")
    adding.add_argument("run", metavar="RUN", help="a run's folder, or its name")
    adding.add_argument("name", metavar="NAME", help="name of the agent")
    adding.add_argument("--checkpoint", default="newest", help="newest, best, a step, or a path (default: newest)")
    adding.add_argument("--episodes", type=int, default=100, help="number of episodes for the score (default: 100)")
    commands.add_parser("cards", description="Writes all model cards again.")
    pushing = commands.add_parser("push", description="Uploads all agents. Log in once with hf auth login.")
    pushing.add_argument("user", metavar="USER", help="account on the Hub")
    pushing.add_argument("--private", action="store_true", help="make new repositories private")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code: 0 on success, 1 if the environment fails, 2 for bad input."""
    try:
        options = _parser().parse_args(argv)
        if options.command == "add":
            print(add(load(folders.find(options.run), options.checkpoint), options.name, options.episodes))
        elif options.command == "push":
            push(options.user, options.private)
        else:
            renew()
    except (ConfigError, FileNotFoundError, AgentFailure) as error:
        print(f"zoo.py: {error}", file=sys.stderr)
        return 1 if isinstance(error, AgentFailure) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
