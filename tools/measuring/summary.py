"""Summarizes measurements: medians over rounds, and a table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
_PARTS = {"env": "environments", "predict": "predictions", "train": "training"}
_ROLES = {
    "agents": "agent processes",
    "framework": "threads of the framework",
    "unused": "unused, or used by other programs",
    "trainer": "trainer threads",
    "base": "base predictor threads",
}


def medians(rows: Sequence[Row]) -> dict[str, Any]:
    """Returns the median of every number, at any depth, over the balanced rows, or over all rows if none is balanced.

    A function that is missing in the profile of a round counts as 0 there. "rounds" is the number of rows, and
    "balanced" is the number of balanced ones.
    """
    return _median(counting(rows)) | {"balanced": sum(row["balanced"] for row in rows), "rounds": len(rows)}


def counting(rows: Sequence[Row]) -> Sequence[Row]:
    """Returns the balanced rows, or all rows if none is balanced."""
    return [row for row in rows if row["balanced"]] or rows


def _median(values: Sequence[Any]) -> Any:
    if isinstance(values[0], bool):
        return values[0]
    if not isinstance(values[0], Mapping):
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None
    default = 0.0 if all(isinstance(x, int | float) for value in values for x in value.values()) else None
    keys = dict.fromkeys(key for value in values for key in value)
    present = {key: [value.get(key, default) for value in values] for key in keys}
    return {key: _median([x for x in of if x is not None] or [None]) for key, of in present.items()}


def table(results: Mapping[str, Row], about: str) -> str:
    """Returns the medians as a text table with a column for each set of tasks."""
    rows = list(results.values())
    lines = [about, ""]

    def section(title: str, *entries: tuple[str, Callable[[Row], str]]) -> None:
        lines.append(f"{title:<46}" + "".join(f"{name:>20}" for name in results))
        lines.extend(f"  {label:<44}" + "".join(f"{_cell(of, row):>20}" for row in rows) for label, of in entries)
        lines.append("")

    section("agent steps per second", *_rates())
    section("time that an agent waits for its action", *_waits())
    section("prediction batch: mean (p50, p95, max)", *_per_key(rows, "predictions", _sizes))
    section("queue length: mean (max)", *_per_key(rows, "queues", lambda x: f"{x['mean']:.1f} ({x['max']:.0f})"))
    section("bytes per agent step", *_per_key(rows, "bytes", lambda x: f"{x:,.0f}"))
    section("CPU milliseconds per agent step", *_cpu(rows))
    section("memory of all processes, MB", *_memory())
    section("predictions only, per second, by batch size", *_per_key(rows, "predict_sizes", lambda x: f"{x:,.0f}"))
    for name, row in results.items():
        lines += _profile(name, row)
    return "\n".join(lines)


def _cell(of: Callable[[Row], str], row: Row) -> str:
    try:
        return of(row)
    except (KeyError, TypeError):  # this set of tasks has no such queue, or there were no values
        return "-"


def _rates() -> list[tuple[str, Callable[[Row], str]]]:
    parts = {"environments only, on all cores": "env", "predictions only, mean batch size": "predict"}
    parts |= {"training only": "train", "limit": "limit", "whole system, acted": "pps", "whole system, trained": "tps"}
    entries: list[tuple[str, Callable[[Row], str]]] = [
        (label, lambda row, key=key: f"{row[key]:,.0f}") for label, key in parts.items()
    ]
    lag: Callable[[Row], str] = lambda row: f"{row['policy_lag']:.1f} ({row['policy_lag_max']:.0f})"  # noqa: E731
    return [
        *entries,
        ("share of the limit", lambda row: f"{row['share']:.2f}"),
        ("policy lag, updates: mean (max)", lag),
        ("training batch size; time per update, ms", lambda row: f"{row['train_batch']:.0f}; {row['update_ms']:.1f}"),
        ("balanced rounds", lambda row: f"{row['balanced']} of {row['rounds']}"),
    ]


def _waits() -> list[tuple[str, Callable[[Row], str]]]:
    return [
        ("mean, ms", lambda row: f"{row['wait']['mean_ms']:.2f}"),
        ("p50, p95, ms", lambda row: f"{row['wait']['p50_ms']:.2f}, {row['wait']['p95_ms']:.2f}"),
        ("share of the agent's time", lambda row: f"{row['wait']['share']:.0%}"),
        ("time in the network, ms", lambda row: f"{row['wait']['network_ms']:.2f}"),
        ("time not in the network (GA3C: 90 %)", lambda row: f"{row['wait']['overhead']:.0%}"),
    ]


def _cpu(rows: Sequence[Row]) -> list[tuple[str, Callable[[Row], str]]]:
    alone = [(f"{part} alone", lambda row, key=key: f"{row['alone_cpu_ms'][key]:.3f}") for key, part in _PARTS.items()]
    system = _per_key(rows, "cpu_ms", lambda x: f"{x:.3f}")
    share: tuple[str, Callable[[Row], str]] = (
        "sum of the parts / whole system",
        lambda row: f"{row['cpu_share']:.2f}",
    )
    return [*alone, *((f"system: {_ROLES.get(key, key)}", of) for key, of in system), share]


def _memory() -> list[tuple[str, Callable[[Row], str]]]:
    return [
        ("at the end", lambda row: f"{row['memory']['bytes'] / 1e6:,.0f}"),
        ("with full replay rings", lambda row: f"{row['memory']['with_full_rings'] / 1e6:,.0f}"),
    ]


def _per_key(rows: Iterable[Row], name: str, shown: Callable[[Any], str]) -> list[tuple[str, Callable[[Row], str]]]:
    keys = dict.fromkeys(key for row in rows for key in row[name])
    return [(key.replace("_", " "), lambda row, key=key: shown(row[name][key])) for key in keys]


def _sizes(x: Row) -> str:
    return f"{x['mean']:.1f} ({x['p50']:.0f}, {x['p95']:.0f}, {x['max']:.0f})"


def _profile(name: str, row: Row) -> list[str]:
    """Lists the functions in which the server's threads spent at least 1 % of their time."""
    lines = [f"{name}: profile of the server's threads (sampling took {row['profile_cost']:.1%} of a core)"]
    for role, places in row["profile"].items():
        shown = [(place, share) for place, share in sorted(places.items(), key=lambda x: -x[1]) if share >= 0.01]
        lines.append(f"  {role:<12}" + ", ".join(f"{_place(place)} {share:.0%}" for place, share in shown))
    return [*lines, ""]


def _place(name: str) -> str:
    return f"{name} (waiting)" if name == "queues.get" else name
