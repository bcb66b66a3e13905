"""Compares the training speed of systems: measures them in rounds and shows a table of medians."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.command_line import say
from measuring.gauge import Failed, Gauge

from peers.contestants import Contestant, absence, describe

COMPARED = ("rate", "cpu_ms", "memory")
NOISE = 0.05  # share of the cores that other programs may use before the table warns


def measure(contestant: Contestant, warmup: float, seconds: float) -> dict[str, Any]:
    """Makes one measurement. See `Gauge.measure` for the result and the error."""
    with (
        tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as folder,
        Gauge(contestant.command(), Path(folder)) as gauge,
    ):
        return gauge.measure(warmup, seconds)


def compare(contestants: Sequence[Contestant], rounds: int, warmup: float, seconds: float) -> dict[str, dict[str, Any]]:
    """Measures the systems in rounds, and prints each measurement.

    Returns:
      For each label, `versions`, `settings` and `rounds`, or the reason why the system is `absent` or has `failed`.
    """
    results: dict[str, dict[str, Any]] = {}
    for contestant in contestants:
        row = results[contestant.label] = {
            "title": contestant.peer.title,
            "is_ours": contestant.peer.is_ours,
        }
        try:
            row |= describe(contestant) | {"rounds": []}
        except Failed as error:
            row["absent"] = absence(contestant, error)
    for number in range(rounds):
        for contestant in contestants if number % 2 == 0 else reversed(contestants):
            row = results[contestant.label]
            if "absent" in row or "failed" in row:
                continue
            try:
                found = measure(contestant, warmup, seconds)
            except Failed as error:
                row["failed"] = str(error)
                say(f"round {number + 1}: {contestant.label} {error}")
                continue
            row["rounds"].append(found)
            figures = f"{found['rate']:,.0f} agent steps/s, {found['cpu_ms']:.2f} CPU ms/step"
            say(
                f"round {number + 1}: {contestant.label} {figures}; other programs used {found['others']:.0%} of the "
                "cores"
            )
    return results


def summarize(results: dict[str, dict[str, Any]]) -> str | None:
    """Adds the `median` over the rounds, and its `ratio` to the fastest other system.

    Returns:
      The label of the fastest other system, or None if there is none.
    """
    good = {label: row for label, row in results.items() if row.get("rounds") and "failed" not in row}
    for row in good.values():
        row["median"] = {key: statistics.median(found[key] for found in row["rounds"]) for key in row["rounds"][0]}
    rates = {label: row["median"]["rate"] for label, row in good.items() if not row["is_ours"]}
    best = max(rates, key=lambda label: rates[label], default=None)
    if best is not None:
        reference = good[best]["median"]
        for row in good.values():
            row["ratio"] = {key: row["median"][key] / reference[key] for key in COMPARED}
    return best


def table(results: Mapping[str, Mapping[str, Any]], best: str | None) -> str:
    """Returns the results as a text table."""
    width = max(len("gunreal-tasks"), *(len(label) for label in results)) + 2
    heads = ("agent steps/s", "x best peer", "CPU ms/step", "x best peer", "memory, MB", "x best peer", "other load, %")
    lines = [" " * width + "".join(f"{head:>15}" for head in heads)]
    notes = [f"best peer (the fastest other system): {best}" if best else "no other system was measured"]
    for label, row in results.items():
        for state in ("absent", "failed"):
            if state in row:
                notes.append(f"{label} ({row['title']}) {state}: {row[state]}")
        if "median" not in row:
            continue
        median, ratio = row["median"], row.get("ratio")
        shown = {"rate": f"{median['rate']:,.0f}", "cpu_ms": f"{median['cpu_ms']:.2f}"}
        shown["memory"] = f"{median['memory'] / 1e6:,.0f}"
        cells = [cell for key in COMPARED for cell in (shown[key], f"{ratio[key]:.2f}" if ratio else "-")]
        cells.append(f"{100 * median['others']:.0f}")
        lines.append(f"{label:<{width}}" + "".join(f"{cell:>15}" for cell in cells))
        if median["others"] > NOISE:
            notes.append(
                f"{label}: other programs used {median['others']:.0%} of the cores; measure on an idle machine"
            )
    return "\n".join([*lines, *notes])
