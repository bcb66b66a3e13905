"""The command `gunreal export` on a trained run; test_exporting.py in runtime/ compares the outputs."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
from trained import catch_run

import gunreal
from gunreal.export import main
from gunreal.learning import devices
from gunreal.run import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return gunreal.load(catch_run(tmp_path_factory.getbasetemp()))


def test_the_command_writes_the_runs_policy(run, tmp_path, capsys):
    """Without the heads of its tasks."""
    import keras

    path = tmp_path / "policy.keras"
    assert main(["gunreal export", str(run.path), str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    policy = keras.models.load_model(path)
    observations = np.random.default_rng(0).integers(0, 256, (8, *run.spec.observation), np.uint8)
    logits, value = run.learner.predict("base", observations)
    found = policy({"observation": observations})
    np.testing.assert_allclose(np.asarray(found["logits"]), logits, atol=1e-5)
    np.testing.assert_allclose(np.asarray(found["value"]), value, atol=1e-5)
    assert len(policy.weights) == 10  # kernels and biases of five layers


def test_a_run_of_a_backend_that_is_not_installed_here(run, tmp_path, monkeypatch):
    """It is exported with the one that is, as it is evaluated."""
    logits, _ = run.learner.predict("base", np.zeros((1, *run.spec.observation), np.uint8))
    own = sys.modules["keras"].backend.backend()
    monkeypatch.setattr(devices, "installed", lambda: (own,))
    (other,) = {*devices.BACKENDS} - {own}
    path = Run(run.path, dataclasses.replace(run.config, backend=other)).export(tmp_path / "policy.keras")
    policy = sys.modules["keras"].models.load_model(path)
    found = policy({"observation": np.zeros((1, *run.spec.observation), np.uint8)})["logits"]
    np.testing.assert_allclose(np.asarray(found), logits, atol=1e-5)
