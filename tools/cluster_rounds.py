"""Measures rounds of a cluster whose nodes sleep instead of computing, so that the number of cores does not matter.

  python tools/cluster_rounds.py --nodes 1,2,4,8
  python tools/cluster_rounds.py --nodes 8 --slow 5 --quorum 1
  python tools/cluster_rounds.py --nodes 8 --reducers 2 --gradient_dtype bfloat16 --weights 3M
  python tools/cluster_rounds.py --nodes 4 --mbit 500

All nodes run on this machine, with --mbit as machines of their own in network namespaces. The coordinator, the reducers
and the transport are those of `gunreal train --runner cluster`.

Exit codes: 0 on success, 2 for bad input, 130 if stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from common.command_line import Parser, check_positive, positive_count, say
from measuring import namespaces

from gunreal.cluster.compression import Packer
from gunreal.cluster.coordinator import Coordinator
from gunreal.cluster.flat import bounds
from gunreal.cluster.model import Rules
from gunreal.cluster.node import Answer, Assignment, Description
from gunreal.config.checks import check
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config, ConfigError
from gunreal.experience.spec import Spec
from gunreal.records.metrics import RunMetrics

BATCH = 32  # agent steps of each gradient
SPREAD = 0.15  # standard deviation of the logarithm of the time for a gradient


class Sleeper:
    """A node whose gradients take time and no work. Its settings are in `env_args`."""

    def start(self, told: Assignment) -> Description:
        """Draws a gradient that it sends every time."""
        settings = told.fields["env_args"]
        seed = told.fields["seed"]
        self._rng, self._metrics = np.random.default_rng(seed), RunMetrics()
        self._gradient = self._rng.normal(size=settings["weights"]).astype(np.float32)
        self._packer = Packer(told.fields["gradient_dtype"])
        first = seed == settings["first"]  # one node is slow
        self._seconds = settings["compute"] * (settings["slow"] if first else 1.0)
        arrays = ("weights/w", "optimizer/mean/w", "optimizer/square/w")
        state = {name: np.zeros(settings["weights"], np.float32) for name in arrays}
        state |= {"optimizer/updates": np.array(0), "version": np.array(0)}
        return Description(state, Rules({}, {}, [], {}), os.getpid())

    def gradient(
        self, version: int, now: Any, untrained: dict[str, np.ndarray], *weights: np.ndarray
    ) -> tuple[Any, ...]:
        """Sleeps for the time of a gradient."""
        start = time.monotonic()
        packed = self._packer.pack(self._gradient)
        self._metrics.acted(BATCH)
        time.sleep(max(0.0, self._seconds * float(self._rng.lognormal(0, SPREAD)) - (time.monotonic() - start)))
        seconds = time.monotonic() - start
        answer = Answer(True, {}, BATCH, seconds, packed.nbytes, self._metrics.take())
        return answer, *(packed[part] for part in bounds(len(packed), len(weights)))

    def gauges(self) -> None:
        """A sign of life."""

    def stop(self) -> None:
        """Nothing is left to end."""


class SleepingCoordinator(Coordinator):
    """The coordinator of sleeping nodes."""

    node = Sleeper


def config_of(options: argparse.Namespace, nodes: int) -> Config:
    """The configuration of a cluster, on the Ray cluster `options.address` or on this machine."""
    settings = {"weights": options.weights, "compute": options.compute, "slow": options.slow, "first": 1}
    return Config(
        runner="cluster",
        nodes=nodes,
        reducers=options.reducers,
        quorum=options.quorum,
        gradient_dtype=options.gradient_dtype,
        address=options.address,
        env_args=settings,
        steps=2**40,
    )


def measure(options: argparse.Namespace, nodes: int) -> dict[str, Any]:
    """Runs rounds for some seconds and returns the metrics of that time."""
    config = resolved(config_of(options, nodes))
    spec = Spec((4,), 1, "float32", 2)
    with contextlib.closing(SleepingCoordinator(config, spec, (), None)) as run:
        found: dict[str, Any] = {}
        begun = 0.0

        def tick() -> None:
            nonlocal begun
            line_due = begun and time.monotonic() - begun >= options.seconds
            if not begun and run.metrics.step >= 10 * nodes * BATCH:
                run.snapshot()
                begun = time.monotonic()
            elif line_due:
                found.update(run.snapshot())
                run.stop("steps")

        run.run(tick)
    return found


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Returns the options. Raises ConfigError."""
    parser = Parser("cluster_rounds.py", __doc__)
    parser.add_argument("--nodes", default="1,2,4,8", help="numbers of nodes")
    parser.add_argument("--weights", default="540000", help="number of weights")
    parser.add_argument("--compute", type=float, default=0.2, help="seconds for a gradient")
    parser.add_argument("--slow", type=float, default=1.0, help="how many times longer one of the nodes takes")
    parser.add_argument("--reducers", type=int, default=1, help="number of reducers")
    parser.add_argument("--quorum", type=float, default=0.9, help="share of the nodes that ends a round")
    parser.add_argument(
        "--gradient_dtype", default="float32", choices=("float32", "bfloat16"), help="data type of gradients"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds to measure")
    parser.add_argument(
        "--mbit", type=float, default=0, help="bandwidth of each node, in network namespaces (default: no network)"
    )
    parser.add_argument("--address", default="", help="address of a Ray cluster to use instead")
    parser.add_argument("--json", action="store_true", help="print all metrics as JSON")
    options = parser.parse_args(argv)
    options.weights = positive_count("weights", options.weights)
    options.nodes = [positive_count("nodes", word) for word in options.nodes.split(",")]
    for name in ("slow", "seconds"):
        check_positive(name, getattr(options, name))
    if options.mbit:
        check_positive("mbit", options.mbit)
    for nodes in options.nodes:
        check(config_of(options, nodes), ())
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a row for each number of nodes, and returns the exit code."""
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        with contextlib.ExitStack() as stack:
            if options.mbit:
                network = stack.enter_context(namespaces.started(max(options.nodes)))
                options.address = network.address
                for place in range(1, max(options.nodes) + 1):
                    network.limit(place, options.mbit)
            _print(options)
    except ConfigError as error:
        print(f"cluster_rounds.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _print(options: argparse.Namespace) -> None:
    if options.json:
        for nodes in options.nodes:
            print(json.dumps(measure(options, nodes)))
        return
    say("| nodes | ms a round | overhead, ms | gradients a round | samples a second | MiB a round |")
    say("|---|---|---|---|---|---|")
    for nodes in options.nodes:
        line = measure(options, nodes)
        rate = line["contributions"] * BATCH * 1000 / line["round_ms"]
        say(
            f"| {nodes} | {line['round_ms']:.0f} | {line['overhead_ms']:.0f} | {line['contributions']:.2f} | "
            f"{rate:.0f} | {line['traffic_mb']:.1f} |"
        )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that networks are removed
    sys.exit(main())
