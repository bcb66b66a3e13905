"""What a cluster run reports beside the metrics of every run."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from gunreal.cluster.fleet import Member
from gunreal.cluster.node import Answer
from gunreal.records.mean import Mean
from gunreal.records.metrics import RunMetrics


class Report:
    """Counts what happens between nodes, for the lines of metrics.

    Attributes:
      refused: number of gradients that were not finite.
    """

    def __init__(self) -> None:
        self.refused = self._late = 0
        self._missed: Counter[int] = Counter()
        self._steps: Counter[int] = Counter()
        self._lags: defaultdict[int, Mean] = defaultdict(Mean)
        self._means: defaultdict[str, Mean] = defaultdict(Mean)
        self._bytes, self._rounds = 0, 0
        self._since = time.monotonic()

    def answered(self, member: Member, answer: Answer, late: bool, staleness: int) -> None:
        """Records a gradient."""
        self._late += late
        self._missed[member.slot] += late
        self.refused += not answer.used
        self._bytes += answer.bytes
        self._steps[member.slot] += answer.counted["counts"]["step"]
        lag = answer.counted["means"].get("policy_lag")
        if lag is not None:
            self._lags[member.slot].merge(lag)
        self._means["staleness"].add(staleness)

    def sent(self, size: int) -> None:
        """Records that `size` bytes of weights and moments were sent to a node."""
        self._bytes += size

    def ended(self, seconds: float, computing: Sequence[float]) -> None:
        """Records a round, and how long the nodes computed their gradients."""
        self._rounds += 1
        self._means["round_ms"].add(1000 * seconds)
        if computing:
            # With `sync off`, a gradient may have begun before the round.
            self._means["overhead_ms"].add(1000 * max(0.0, seconds - max(computing)))
            self._means["contributions"].add(len(computing))

    def line(self, metrics: RunMetrics, members: Sequence[Member], replaced: int) -> dict[str, Any]:
        """One line of metrics, and the beginning of the next interval."""
        gauges = [member.gauges for member in members if member.gauges]
        sums: Counter[str] = Counter()
        queues: Counter[str] = Counter()
        waits = Mean()
        for values, lengths in gauges:
            wait = values.pop("wait_ms", None)
            if wait is not None:
                waits.add(wait)
            sums.update(values)
            queues.update(lengths)
        now = time.monotonic()
        elapsed, self._since = max(now - self._since, 1e-9), now
        line = metrics.snapshot({**sums, "wait_ms": waits.value()}, queues)
        line |= {"nodes": len(members), "replaced": replaced, "late": self._late, "refused": self.refused}
        for name in ("round_ms", "overhead_ms", "contributions", "staleness"):
            line[name] = self._means[name].value()
        line["traffic_mb"] = self._bytes / 2**20 / self._rounds if self._rounds else None
        for member in members:
            slot = member.slot
            line[f"node{slot}_pps"] = round(self._steps[slot] / elapsed, 1)
            line[f"node{slot}_lag"] = self._lags[slot].value()
            line[f"node{slot}_missed"] = self._missed[slot]
        for counted in (self._means, self._lags, self._steps):
            counted.clear()
        self._bytes = self._rounds = 0
        return line
