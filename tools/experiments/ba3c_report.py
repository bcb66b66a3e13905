"""Reports of the speed experiments of Distributed BA3C: a figure, and a table with the model's predictions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster_rounds import BATCH

from experiments import ba3c, ba3c_model
from experiments.ba3c import WEIGHTS, ClusterExperiment, Condition
from experiments.ba3c_model import NO_STRAGGLERS, Costs, Stragglers
from gunreal.config.schema import ConfigError
from gunreal.records import curves

RARE = Stragglers(0.01, 5.0)  # one gradient in a hundred takes five times as long
PAPER = (64, 14.2 * 60 / 21)  # nodes and speed-up (section 3.1)
_NODES = (1, 2, 4, 8, 16, 32, 64)
_LARGE = Condition(64, 1000, weights=WEIGHTS[128], compute=0.5)  # the paper's network
_CASES = [
    _LARGE._replace(mbit=mbit, reducers=reducers, dtype=dtype)
    for mbit in (1000, 10_000)
    for reducers, dtype in ((1, "float32"), (4, "float32"), (4, "bfloat16"), (8, "bfloat16"))
]


@dataclasses.dataclass(frozen=True)
class Results:
    """What is known.

    Attributes:
      rows: measurements, as saved by `ba3c.measure`.
      costs: the fitted costs.
    """

    rows: Sequence[Mapping[str, Any]]
    costs: Costs

    def speed_up(
        self,
        condition: Condition,
        stragglers: Stragglers = NO_STRAGGLERS,
        quorum: float = 0.9,
        shared: bool = False,
    ) -> float:
        """Data points per second by the model, divided by those of a node without a cluster."""
        rate = ba3c_model.simulate(condition, self.costs, stragglers, quorum, shared).rate
        return rate * condition.compute / BATCH

    def measured(self) -> list[tuple[Condition, float, float]]:
        """Each condition, and its data points per second: measured and by the model."""
        found = []
        for row in self.rows:
            condition = Condition(**row["condition"])
            rate = row["contributions"] * BATCH * 1000 / row["round_ms"]
            found.append((condition, rate, ba3c_model.simulate(condition, self.costs).rate))
        return found


def write(experiment: ClusterExperiment, path: Path) -> None:
    """Writes `EXPERIMENT.png`, `.md` and `.json` beside the measurements.

    Raises:
      ConfigError: nothing has been measured.
      OSError: a file cannot be written.
    """
    rows = ba3c.read(path)
    if len(rows) < 3:
        raise ConfigError(f"{experiment.name} has not been measured yet; run the command without --draw")
    results = Results(rows, ba3c_model.fit(rows))
    costs = results.costs
    out = path.parent / experiment.name
    fitted = (
        f"Fitted: {1000 * costs.fixed:.1f} ms a round, {1000 * costs.each:.2f} ms for each node, "
        f"{1000 * costs.message:.2f} ms for each further slice, and {costs.efficiency:.0%} of the bandwidth."
    )
    scaling = experiment.name == "ba3c-scaling"
    text = _scaling_table(results) if scaling else _rates_table(results)
    out.with_suffix(".md").write_text(f"**{experiment.title}**\n\n{text}\n{fitted} {experiment.shows}\n")
    out.with_suffix(".json").write_text(json.dumps({"costs": costs._asdict(), "rounds": list(rows)}, indent=1) + "\n")
    with curves.picture(2, (12, 5), out.with_suffix(".png"), f"{fitted} {experiment.shows}") as (figure, axes):
        figure.suptitle(experiment.title, fontsize=12)
        _draw_measured(axes[0], results)
        if scaling:
            _draw_scaling(axes[1], results)
        else:
            _draw_rates(axes[1], results, experiment.name == "ba3c-fig6")


def _scaling_table(results: Results) -> str:
    titles = ["Gbit/s", "reducers", "gradients", "16 nodes", "32 nodes", "64 nodes", "stragglers", "waiting for all"]
    lines = [f"| {' | '.join(titles)} | slices in turn |", "|" + "---|" * (len(titles) + 1)]
    for case in _CASES:
        cells = [f"{case.mbit / 1000:g}", str(case.reducers), case.dtype]
        cells += [f"{results.speed_up(case._replace(nodes=nodes)):.1f}" for nodes in (16, 32, 64)]
        cells += [f"{results.speed_up(case, RARE, quorum):.1f}" for quorum in (0.9, 1.0)]
        cells.append(f"{results.speed_up(case, shared=True):.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _rates_table(results: Results) -> str:
    lines = ["| weights | reducers | data points/s, measured | data points/s, model |", "|---|---|---|---|"]
    for condition, rate, modeled in results.measured():
        lines.append(f"| {condition.weights:,} | {condition.reducers} | {rate:,.0f} | {modeled:,.0f} |")
    return "\n".join([*lines, ""])


def _draw_measured(axes: Any, results: Results) -> None:
    found = results.measured()
    most = 1.1 * max(rate for _, rate, _ in found)
    for mbit in sorted({condition.mbit for condition, *_ in found}):
        pairs = [(model, rate) for condition, rate, model in found if condition.mbit == mbit]
        axes.plot(*zip(*pairs, strict=True), "o", label=f"{mbit} Mbit/s" if mbit else "shared memory")
    axes.plot((0, most), (0, most), color="#888888", linewidth=1)
    axes.set(xlabel="data points/s, model", ylabel="data points/s, measured", title="sleeping nodes")
    axes.legend(frameon=False)


def _draw_scaling(axes: Any, results: Results) -> None:
    shown = [(case, NO_STRAGGLERS, 0.9) for case in _CASES if (case.mbit, case.reducers, case.dtype) in _SHOWN]
    shown += [(_CASES[6], RARE, 0.9), (_CASES[6], RARE, 1.0)]
    for case, stragglers, quorum in shown:
        label = f"{case.mbit // 1000} Gbit/s, {case.reducers} reducers, {case.dtype}"
        label += f", stragglers, quorum {quorum:g}" if stragglers.share else ""
        rates = [results.speed_up(case._replace(nodes=nodes), stragglers, quorum) for nodes in _NODES]
        axes.plot(_NODES, rates, "--" if stragglers.share else "-", label=label)
    axes.plot((1, 64), (1, 64), color="#888888", linewidth=1, label="linear")
    axes.plot(*PAPER, "k*", markersize=12, label="the paper, time to a score")
    axes.set(xlabel="nodes", ylabel="speed-up", title="model: 332,295 weights, 0.5 s for a gradient")
    axes.legend(frameon=False, fontsize=8)


_SHOWN = {(1000, 1, "float32"), (1000, 4, "float32"), (1000, 8, "bfloat16"), (10_000, 4, "bfloat16")}


def _draw_rates(axes: Any, results: Results, over_weights: bool) -> None:
    found = results.measured()
    places = [condition.weights if over_weights else condition.reducers for condition, *_ in found]
    axes.plot(places, [rate for _, rate, _ in found], "o", label="measured")
    axes.plot(places, [model for *_, model in found], label="model")
    axes.set(
        xlabel="weights" if over_weights else "reducers",
        ylabel="data points/s",
        ylim=(0, None),
        title="8 nodes at 500 Mbit/s",
    )
    axes.legend(frameon=False)
