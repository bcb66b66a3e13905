"""The operations of a device run, beside a count by hand."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import device_cost
import pytest

TOOL = Path(__file__).parents[2] / "tools" / "device_cost.py"


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs JAX")
def test_the_operations_are_those_of_the_network():
    """A training takes about three times as many as a prediction, or two without the gradient of the pixels."""
    flags = "--env gunreal/Catch-v0 --network mlp --hidden 64 --frame_stack 1 --agents 12 --algorithm a3c"
    command = [sys.executable, TOOL, *flags.split(), "--device_batches", "4", "--tflops", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *table, _, estimate = done.stdout.splitlines()
    numbers = {part: float(number) for part, number, _ in (line[2:-2].split(" | ") for line in table[2:])}
    prediction = 2 * 84 * 84 * 64 / 1e6  # the first layer, which has nearly all weights
    assert numbers["acting"] == pytest.approx(prediction, rel=0.15)
    assert numbers["updates"] == pytest.approx(2 * prediction, rel=0.3)
    assert numbers["values after rollouts and sequences"] == pytest.approx(prediction / 20, abs=0.06)
    assert sum(numbers.values()) - numbers["all"] == pytest.approx(numbers["all"], abs=0.2)
    million = float(estimate.removeprefix("Estimate: at most ").split()[0])
    assert million == pytest.approx(2 / numbers["all"], rel=0.05) and estimate.endswith("per second at 2 TFLOP/s")


def test_what_cannot_be_analyzed(capsys):
    assert device_cost.main(["--algorithm", "dqn"]) == 2
    assert capsys.readouterr().err == "device_cost.py: dqn cannot be analyzed; use --algorithm a3c or ppo\n"
    assert device_cost.main(["--tflops", "0"]) == 2
    assert "--tflops is 0, but must be positive" in capsys.readouterr().err
