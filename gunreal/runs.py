"""`gunreal runs`: lists the runs of a folder, their settings and their scores."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gunreal.config import folders
from gunreal.config.arguments import Arguments
from gunreal.config.schema import Config, ConfigError
from gunreal.records import metrics

_COLUMNS = ("run", "env", "tasks", "seed", "step", "steps", "minutes", "score", "state")
_LEFT = ("run", "env", "tasks", "state")
# Seconds without a new line of metrics after which a run is no longer going on, where the file system has no locks.
_SILENCE = 60.0


def table(logdir: str) -> list[dict[str, Any]]:
    """Describes the runs in a folder and in its sweeps, oldest first.

    Returns:
      For each run, "run" (its name, or SWEEP/NAME), "env", "tasks", "seed", "step" (agent steps so far), "steps" (its
      budget), "minutes" of training, "score" (the last `score_mean`, or None) and "state": "finished", "stopped",
      "running", "failed", or "ended" if it was killed. A folder that cannot be read has "run" and "state" only.

    Raises:
      ConfigError: the folder does not exist.
    """
    folder = folders.expanded(logdir)
    if not folder.is_dir():
        raise ConfigError(f"folder {logdir!r} not found; check --logdir")
    return [_row(path) | {"run": str(path.relative_to(folder))} for path in folders.runs(folder, sweeps=True)]


def _row(run_dir: Path) -> dict[str, Any]:
    try:
        config, lines = folders.saved_config(run_dir), metrics.lines(run_dir)
    except ConfigError as error:
        return {"run": run_dir.name, "state": str(error)}
    last: dict[str, Any] = lines[-1] if lines else {"step": 0, "seconds": 0.0}
    scores = [line["score_mean"] for line in lines if line.get("score_mean") is not None]
    return {
        "run": run_dir.name,
        "env": config.env,
        "tasks": ",".join(config.tasks),
        "seed": config.seed,
        "step": last["step"],
        "steps": config.steps,
        "minutes": round((last.get("seconds") or 0.0) / 60, 1),
        "score": scores[-1] if scores else None,
        "state": _state(run_dir, config, last.get("stopped_by", "")),
    }


def _state(run_dir: Path, config: Config, stopped_by: str) -> str:
    busy = folders.is_busy(run_dir)
    if stopped_by and not busy:
        return {"steps": "finished", "error": "failed"}.get(stopped_by, "stopped")
    if busy is None:
        file = next(path for name in (metrics.FILE, folders.CONFIG) if (path := run_dir / name).exists())
        busy = time.time() - file.stat().st_mtime < _SILENCE + 2 * config.metrics_seconds
    return "running" if busy else "ended"


def _text(rows: Sequence[dict[str, Any]]) -> str:
    cells = [list(_COLUMNS)] + [[_cell(row.get(name)) for name in _COLUMNS] for row in rows]
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in cells), strict=True)]
    signs = ["<" if name in _LEFT else ">" for name in _COLUMNS]
    forms = [f"{{:{sign}{width}}}" for sign, width in zip(signs, [*widths, 0], strict=True)]
    return "\n".join("  ".join(forms).format(*row).rstrip() for row in cells)


def _cell(value: Any) -> str:
    if value in (None, ""):
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main(argv: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    options = _parser(argv[0]).parse_args(argv[1:])
    rows = table(options.logdir)
    print(json.dumps(rows, indent=1) if options.json else _text(rows), flush=True)
    return 0


def _parser(program: str) -> Arguments:
    parser = Arguments(program, "Lists the runs of a folder and of its sweeps, oldest first.")
    parser.add_argument("--logdir", default=Config.logdir, help=f"folder of runs (default: {Config.logdir})")
    parser.add_argument("--json", action="store_true", help="print a list of JSON objects instead of a table")
    return parser
