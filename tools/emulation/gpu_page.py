"""The page of `gpu.py`, in Markdown."""

from __future__ import annotations

from typing import Any

GOALS = (
    "Goals for an H200: 2,000,000 frames/s without and 1,000,000 with observations at 32,768 consoles, "
    "and 300,000 at 4,096."
)


def page(about: dict[str, Any], parts: list[dict[str, Any]]) -> str:
    """Returns the page for a report of `gpu.py`."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    head = (
        f"# GPU\n\nMeasured on {about['date']} on {about['device']} ({about['device_kind']}), with {about['cores']} "
        f"cores of {about['processor']}, Python {about['python']}, {versions}."
    )
    texts = [head]
    for kind, (title, describe) in _KINDS.items():
        if of := [part for part in parts if part["kind"] == kind]:
            texts += [f"## {title}", describe(of)]
    return "\n\n".join(texts) + "\n"


def _verify(parts: list[dict[str, Any]]) -> str:
    part = parts[0]
    if "error" in part:
        return part["error"]
    differ = {game: text for game, text in part["differences"].items() if text}
    return "\n".join([
        f"{len(part['differences']) - len(differ)} of {len(part['differences'])} games are equal to those on the CPU "
        f"in observations, rewards and ends over {part['frames']:,} frames in one batch, with {part['ends']:,} ends of "
        f"episodes and {part['rewards']:,} steps with a reward. This took {part['seconds']:.0f} seconds.",
        *[f"\n- {game}: {where}" for game, where in differ.items()],
    ])  # fmt: skip


def _rates(parts: list[dict[str, Any]]) -> str:
    columns = {"frames": "frames/s", "steps": "agent steps/s", "mebibytes": "states, MiB"}
    rows = [
        (
            [
                ", ".join(part["games"]),
                f"{part['consoles']:,}",
                str(part.get("lanes", "chosen")),
                "yes" if part["observations"] else "no",
            ],
            part,
        )
        for part in parts
    ]
    table = _table(["games", "consoles", "consoles per warp", "observations"], columns, rows)
    return f"Random play inside compiled programs, by consoles at different points of their games. {GOALS}\n\n{table}"


def _occupancy(parts: list[dict[str, Any]]) -> str:
    part = parts[0]
    if "error" in part:
        return part["error"]
    return (
        f"A thread has {part['registers']} registers and {part['local_bytes']:,} bytes of local memory. "
        f"{part['threads']:,} threads ({part['warps']} warps) fit on a multiprocessor."
    )


def _systems(parts: list[dict[str, Any]]) -> str:
    columns = {"env": "environments", "predict": "predictions", "train": "training", "pps": "whole system, acting",
               "tps": "whole system, training"}  # fmt: skip
    return "Agent steps per second.\n\n" + _table(["tasks"], columns, [([part["tasks"]], part) for part in parts])


def _device_runs(parts: list[dict[str, Any]]) -> str:
    columns = {"steps": "agent steps/s", "start": "seconds until the first steps"}
    table = _table(["agents"], columns, [([f"{part['agents']:,}"], part) for part in parts])
    return f"Training with `--runner device --objective a3c --t_max 16` without auxiliary tasks.\n\n{table}"


def _table(labels: list[str], columns: dict[str, str], rows: list[tuple[list[str], dict[str, Any]]]) -> str:
    """Returns a table with the labels of each part, and its numbers or its error."""
    head = [*labels, *columns.values()]
    lines = [head, ["---"] * len(head)]
    for label, part in rows:
        error = [part["error"], *[""] * (len(columns) - 1)] if "error" in part else None
        lines.append([*label, *(error or [f"{part[key]:,.0f}" for key in columns])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_KINDS = {
    "verify": ("Equality of the emulator", _verify),
    "rate": ("Speed of the emulator", _rates),
    "occupancy": ("Occupancy", _occupancy),
    "system": ("Predictions, training and the whole system", _systems),
    "device": ("Device runs", _device_runs),
}
