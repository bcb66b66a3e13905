"""Stand-ins for other systems: interpreters whose drivers only look like training, and curves that they would leave."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"


def learner(path: Path, body: str) -> str:
    """An interpreter whose sb3-ppo learns by `body`, with `curve`, `game` and `seed`; returns its path."""
    path.write_text(
        f"#!{sys.executable}\n"
        "import os, sys, time\n"
        f"sys.path.insert(0, {str(TOOLS)!r})\n"
        "import train_peer\n"
        "from peers import table\n"
        "def learn(curve, game, seed, *, envs=8):\n"
        f"{textwrap.indent(body, '    ')}\n"
        "table.PEERS['sb3-ppo'] = table.PEERS['sb3-ppo']._replace(learn=learn, modules=(), packages=('psutil',))\n"
        "train_peer.main(sys.argv[2:])\n"
    )
    path.chmod(0o755)
    return str(path)


def lines(*scores: float | None, every: int = 100, seconds: float = 60.0, ended: bool = True) -> list[dict]:
    """Metrics with these mean scores, every so many steps and seconds."""
    found = [
        {"step": every * i, "seconds": seconds * i, "episodes": 100 * i, "score_mean": score, "score_max": score}
        for i, score in enumerate(scores, 1)
    ]
    if ended:
        found[-1]["stopped_by"] = "steps"
    return found


def leave(path: Path, found: list[dict]) -> None:
    """Leaves a curve in a run's folder."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in found))
