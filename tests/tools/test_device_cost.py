"""The operations of a device run, beside a count by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
SMALL = "--env gunreal/Catch-v0 --network mlp --frame_stack 1"
COUNTED = f"{SMALL} --hidden 64 --agents 12 --objective a3c --device_batches 4 --tflops 2"
TIMED = f"{SMALL} --hidden 16 --agents 4 --tasks vr --replay_size 40 --objective_args epochs=2 --t_max 5 --turns 9"
PROGRAM = "import sys, device_cost; [device_cost.main(flags.split()) or print('---') for flags in sys.argv[1:]]"


@pytest.fixture(scope="module")
def outputs():
    """What the tool prints, of one process: its start takes the longest."""
    pytest.importorskip("jax")
    done = subprocess.run([sys.executable, "-c", PROGRAM, COUNTED, TIMED], capture_output=True, text=True, cwd=TOOLS)
    assert done.stdout.count("---\n") == 2, done.stderr
    return done.stdout.split("---\n")


def rows(lines):
    """The numbers of a table by its first column."""
    return {part: float(number) for part, number, *_ in (line[2:-2].split(" | ") for line in lines[2:])}


def test_the_operations_are_those_of_the_network(outputs):
    """A training takes about three times as many as a prediction, or two without the gradient of the pixels."""
    *table, _, estimate = outputs[0].splitlines()
    numbers = rows(table)
    prediction = 2 * 84 * 84 * 64 / 1e6  # the first layer, which has nearly all weights
    assert numbers["acting"] == pytest.approx(prediction, rel=0.15)
    assert numbers["updates"] == pytest.approx(2 * prediction, rel=0.3)
    assert numbers["values after rollouts and sequences"] == pytest.approx(prediction / 20, abs=0.06)
    assert sum(numbers.values()) - numbers["all"] == pytest.approx(numbers["all"], abs=0.2)
    million = float(estimate.removeprefix("Estimate: at most ").split()[0])
    assert million == pytest.approx(2 / numbers["all"], rel=0.05) and estimate.endswith("per second at 2 TFLOP/s")


def test_the_times_of_a_turn(outputs):
    """The tasks take part in the first of two epochs only."""
    operations, _, times, measured = outputs[1].split("\n\n")
    counted, found = rows(operations.splitlines()), rows(times.splitlines())
    assert 1.2 < counted["updates with tasks"] / counted["updates"] < 2  # twice as many frames, and the same optimizer
    total, alone = found.pop("all"), found.pop("environments alone")
    assert set(found) == {"acting", "values after rollouts and sequences", "updates", "updates with tasks"}
    assert min(found.values()) >= 0 and total == pytest.approx(sum(found.values()), abs=0.5)
    assert 0 < alone < total
    assert float(measured.split()[1].replace(",", "")) == pytest.approx(4 * 5 * 1000 / total, rel=0.1)
