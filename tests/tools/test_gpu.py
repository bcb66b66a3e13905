"""The command that verifies and measures on a GPU, with the CPU in its place."""

from __future__ import annotations

import json
import os

import gpu
import pytest
from emulation import gpu_page

from gunreal.config.checks import check
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config

jax = pytest.importorskip("jax")
from emulation import device  # noqa: E402

DRY = ["--dry", "--backend", os.environ.get("KERAS_BACKEND", "tensorflow")]  # this process may have loaded Keras
ROW = {"env": 1000.0, "predict": 2000.0, "train": 3000.0, "pps": 400.0, "tps": 410.0}


def rate_of(fields, *limits):
    assert fields.items() >= gpu.DEVICE_RUN.items()
    return {"steps": 500.0 + fields["agents"], "start": 3.0}


def run(monkeypatch, *flags):
    """Runs the command with small measurements, and without those of the whole system."""
    monkeypatch.setattr(gpu.measure, "row", lambda config, seconds: ROW)
    monkeypatch.setattr(gpu, "training_rate", rate_of)
    monkeypatch.setattr(device, "rate", lambda rate=device.rate, **of: rate(**of | {"seconds": 0.0}))
    return gpu.main([*DRY, "--env", "gunreal/Catch-v0", "--json", "x.json", "--page", "x.md", *flags])


def test_a_dry_run_does_all_parts_on_the_cpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "--games", "pong,boxing") == 0
    parts = json.loads((tmp_path / "x.json").read_text())["parts"]
    assert parts["equality"]["differences"] == {"pong": "", "boxing": ""}
    assert parts["equality"]["frames"] == 4 * 22 * 2 * 2
    assert all(part["frames"] > 0 for part in parts.values() if part["kind"] == "rate")
    assert parts["whole system, pc,vr,rp"]["pps"] == 400
    page = (tmp_path / "x.md").read_text()
    assert "2 of 2 games are equal" in page and "| base | 1,000 | 2,000 | 3,000 | 400 | 410 |" in page
    assert "| 8 | 508 | 3 |" in page
    assert (
        "the CPU instead of a GPU" in page
        and "| pong | 8 | chosen | no |" in page
        and "| pong | 4 | 32 | yes |" in page
    )


@pytest.mark.parametrize("agents", gpu.DEVICE_AGENTS)
def test_the_batches_of_device_runs_fit_into_the_memory(agents):
    config = resolved(Config(runner="device", agents=agents, **gpu.DEVICE_RUN))
    check(config)
    assert 80 <= agents // config.device_batches * config.t_max <= 2**15
    assert config.objective != "ppo"  # which would train on all agents at once


def test_a_difference_is_found_and_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    step = device.VectorAtari.step

    def wrong(self, actions):
        results = step(self, actions)
        if isinstance(results[1], jax.Array):
            return results[0], results[1].at[2].add(1), *results[2:]
        return results

    monkeypatch.setattr(device.VectorAtari, "step", wrong)
    monkeypatch.setattr(gpu, "rates", lambda dry: [])
    assert run(monkeypatch, "--games", "pong,boxing") == 1
    found = json.loads((tmp_path / "x.json").read_text())["parts"]["equality"]["differences"]
    assert found == {"pong": "", "boxing": "step 0: reward of 1 of 2 consoles"}
    assert "1 of 2 games are equal" in (tmp_path / "x.md").read_text()


def test_a_part_that_fails_or_comes_too_late_is_named_and_the_others_follow(tmp_path):
    report = gpu.Report({"cores": 1}, tmp_path / "x.json", tmp_path / "x.md", minutes=1)
    gpu_page_of, gpu_page.page = gpu_page.page, lambda about, parts: str(parts)
    try:
        report.add("first", lambda: 1 / 0, kind="rate")
        report.add("second", dict, needed=61, kind="rate")
        report.add("third", lambda: {"frames": 1}, needed=50, kind="rate")
    finally:
        gpu_page.page = gpu_page_of
    assert report.parts["first"]["error"] == "ZeroDivisionError: division by zero"
    assert "no time" in report.parts["second"]["error"] and report.parts["third"]["frames"] == 1
    assert report.failed() and list(json.loads((tmp_path / "x.json").read_text())["parts"]) == list(report.parts)
