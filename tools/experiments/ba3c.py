"""The speed experiments of Distributed BA3C (Adamski et al. 2018), which `reproduce.py` measures and extrapolates.

Nodes sleep instead of computing, so that all of them fit on one machine. The figure with learning curves is the
sweep `ba3c-fig3`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cluster_rounds
from measuring import namespaces

from experiments import saved
from experiments.table import Experiment
from gunreal.config.schema import ConfigError

COMPUTE = 0.2  # seconds for a gradient
WEIGHTS = {256: 538_119, 128: 332_295, 64: 229_383, 32: 177_927, 16: 152_199}  # table 2, by neurons of the dense layer


class Condition(NamedTuple):
    """What is measured: a setting of `tools/cluster_rounds.py`.

    Attributes:
      nodes: number of nodes.
      mbit: bandwidth of each node, or 0 for shared memory.
      reducers: number of reducers.
      dtype: data type of gradients.
      weights: number of weights.
      compute: seconds for a gradient.
      slow: how many times longer one of the nodes takes.
    """

    nodes: int
    mbit: int = 0
    reducers: int = 1
    dtype: str = "float32"
    weights: int = 538_119
    compute: float = COMPUTE
    slow: float = 1.0


@dataclass(frozen=True, kw_only=True)
class ClusterExperiment(Experiment):
    """An experiment with rounds of sleeping nodes. `envs` and `settings` are empty.

    Attributes:
      conditions: what is measured.
    """

    conditions: tuple[Condition, ...]


_FAST, _SLOW = 500, 200  # Mbit/s
_ALL = (
    ClusterExperiment(
        name="ba3c-scaling",
        title="Distributed BA3C figure 8: speed-up over the number of nodes",
        shows="In the paper (section 3), 64 nodes reach 300 points in Breakout in 21 minutes and one node in 14.2 "
        "hours, a factor of 41.",
        envs=("",),
        settings={},
        conditions=(
            *(Condition(nodes) for nodes in (1, 2, 4, 8)),
            *(Condition(nodes, _FAST) for nodes in (1, 2, 4, 8)),
            Condition(8, _FAST, reducers=4),
            Condition(8, _FAST, reducers=4, dtype="bfloat16"),
            Condition(8, _FAST, reducers=4, slow=5.0),
            Condition(4, _SLOW),
            Condition(4, _SLOW, dtype="bfloat16"),
            Condition(8, _SLOW, reducers=4),
        ),
    ),
    ClusterExperiment(
        name="ba3c-fig6",
        title="Distributed BA3C figure 6: data points per second over the size of the fully connected layer",
        shows="In the paper (section 2.5), 32 nodes and 4 parameter servers process more data points per second with "
        "fewer weights. The paper states no numbers.",
        envs=("",),
        settings={},
        conditions=tuple(Condition(8, _FAST, reducers=4, weights=weights) for weights in WEIGHTS.values()),
    ),
    ClusterExperiment(
        name="ba3c-fig7",
        title="Distributed BA3C figure 7: data points per second over the number of parameter servers",
        shows="In the paper (section 2.5), 32 nodes with 332,000 weights and small batches gain from more parameter "
        "servers up to some point. The paper states no numbers.",
        envs=("",),
        settings={},
        conditions=tuple(
            Condition(8, _FAST, reducers=reducers, weights=WEIGHTS[128], compute=0.05) for reducers in (1, 2, 4, 8)
        ),
    ),
)
ROUNDS = {experiment.name: experiment for experiment in _ALL}


def read(path: Path) -> list[dict[str, Any]]:
    """The measurements so far: the fields of a condition, the metrics of its rounds, "machine" and "seconds".

    Raises:
      ConfigError: the file is damaged.
    """
    return saved.load(path, list) if path.exists() else []


def measure(experiment: ClusterExperiment, path: Path, seconds: float, say: Callable[[str], None]) -> None:
    """Makes the missing measurements and saves each in `path`.

    Raises:
      ConfigError: network namespaces cannot be made, a measurement failed, the file has measurements of another machine
        or of another length, or it is damaged.
      OSError: the file cannot be written.
    """
    rows, about = read(path), {"machine": saved.here(), "seconds": seconds}
    saved.check(path, rows, **about)
    done = [Condition(**row["condition"]) for row in rows]
    missing = [condition for condition in experiment.conditions if condition not in done]
    for mbit in sorted({condition.mbit for condition in missing}):
        these = [condition for condition in missing if condition.mbit == mbit]
        with _cluster(mbit, max(condition.nodes for condition in these)) as address:
            for condition in these:
                line = _rounds(condition, address, seconds)
                rows.append({"condition": condition._asdict(), **line, **about})
                saved.save(path, rows)
                found = f"{line['round_ms']:.0f} ms a round, {line['contributions']:.2f} gradients"
                say(f"{len(rows)} of {len(experiment.conditions)}: {condition}: {found}")


@contextlib.contextmanager
def _cluster(mbit: int, nodes: int) -> Iterator[str]:
    if not mbit:
        yield ""
        return
    with namespaces.started(nodes) as network:
        for place in range(1, nodes + 1):
            network.limit(place, mbit)
        yield network.address


def _rounds(condition: Condition, address: str, seconds: float) -> dict[str, Any]:
    flags = {
        "nodes": condition.nodes,
        "weights": condition.weights,
        "compute": condition.compute,
        "slow": condition.slow,
        "reducers": condition.reducers,
        "gradient_dtype": condition.dtype,
        "seconds": seconds,
        "address": address,
    }
    command = [
        sys.executable,
        cluster_rounds.__file__,
        "--json",
        *(f"--{name}={value}" for name, value in flags.items()),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # Ray's settings last for a process
    if done.returncode:
        raise ConfigError(f"no rounds with {condition}; see the messages above")
    line = json.loads(done.stdout.splitlines()[-1])
    return {name: line[name] for name in ("round_ms", "overhead_ms", "contributions", "traffic_mb")}
