from __future__ import annotations

import types

import numpy as np
import pytest

from gunreal.cluster.node import Answer
from gunreal.cluster.report import Report
from gunreal.records.metrics import RunMetrics


def member(slot, wait=None):
    return types.SimpleNamespace(slot=slot, gauges=({"agents": 4, "wait_ms": wait}, {"train": 3}))


def answer(steps, lag=2.0, used=True):
    node = RunMetrics()
    node.acted(steps)
    node.trained(steps, [lag], {})
    return Answer(used, np.zeros(1), steps, 0.2, 2**20, node.take())


def test_a_line_has_all_nodes():
    report, metrics = Report(), RunMetrics()
    one, two = member(0, 10.0), member(1, 25.0)
    report.answered(one, answer(100), False, 0)
    report.answered(two, answer(300, lag=6.0), True, 1)
    report.answered(two, answer(100, lag=4.0, used=False), False, 0)
    report.sent(2**20)
    report.ended(0.3, [0.2, 0.25])
    report.ended(0.5, [0.4])
    line = report.line(metrics, [one, two], replaced=3)
    assert (line["nodes"], line["replaced"], line["late"], line["refused"]) == (2, 3, 1, 1)
    assert (line["node0_missed"], line["node1_missed"]) == (0, 1)
    assert (line["node0_lag"], line["node1_lag"]) == (2.0, 5.0)
    assert line["node1_pps"] == pytest.approx(4 * line["node0_pps"], rel=1e-2)
    assert line["round_ms"] == pytest.approx(400) and line["overhead_ms"] == pytest.approx(75)
    assert line["contributions"] == 1.5 and line["staleness"] == pytest.approx(1 / 3)
    assert line["traffic_mb"] == 2.0  # 3 gradients and the weights, over 2 rounds
    assert (line["agents"], line["queue_train"], line["wait_ms"]) == (8, 6, 17.5)


def test_totals_stay_and_the_rest_begins_anew():
    report, metrics, one = Report(), RunMetrics(), member(0)
    report.answered(one, answer(100), True, 1)
    report.ended(0.3, [])
    report.line(metrics, [one], 0)
    line = report.line(metrics, [one], 0)
    assert line["late"] == line["node0_missed"] == 1
    assert line["node0_pps"] == 0 and line["round_ms"] is line["traffic_mb"] is line["node0_lag"] is None


def test_a_gradient_that_began_before_its_round_leaves_no_overhead():
    report = Report()
    report.ended(0.1, [0.3])
    report.ended(0.2, [0.1])
    assert report.line(RunMetrics(), [], 0)["overhead_ms"] == pytest.approx(50)
