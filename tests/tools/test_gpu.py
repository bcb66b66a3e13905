"""The command that verifies and measures on a GPU, with the CPU in its place."""

from __future__ import annotations

import json

import gpu
import pytest

jax = pytest.importorskip("jax")
from emulation import device  # noqa: E402


def run(monkeypatch, *flags):
    """Runs the command with small measurements."""
    monkeypatch.setattr(device, "rate", lambda rate=device.rate, **of: rate(**of | {"seconds": 0.0}))
    return gpu.main(["--dry", "--games", "pong,boxing", "--json", "x.json", "--page", "x.md", *flags])


def test_a_dry_run_does_all_parts_on_the_cpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch) == 0
    parts = json.loads((tmp_path / "x.json").read_text())["parts"]
    assert parts["equality"]["differences"] == {"pong": "", "boxing": ""}
    assert parts["equality"]["frames"] == 4 * 22 * 2 * 2
    assert len(parts) == 10 and all(part["frames"] > 0 for part in parts.values())
    page = (tmp_path / "x.md").read_text()
    assert "2 of 2 games are equal" in page and "the CPU instead of a GPU" in page
    assert "| pong | 8 | chosen | no |" in page and "| pong | 4 | 32 | yes |" in page


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
    assert run(monkeypatch) == 1
    found = json.loads((tmp_path / "x.json").read_text())["parts"]["equality"]["differences"]
    assert found == {"pong": "", "boxing": "step 0: reward of 1 of 2 consoles"}
    page = (tmp_path / "x.md").read_text()
    assert "1 of 2 games are equal" in page and "; boxing: step 0: reward of 1 of 2 consoles" in page


def test_a_part_that_fails_or_comes_too_late_is_named_and_the_others_follow(tmp_path):
    about = {"versions": {}, "date": "today", "device": "a GPU"}
    report = gpu.Report(about, tmp_path / "x.json", tmp_path / "x.md", minutes=1)
    of = {"games": ["pong"], "consoles": 4, "observations": True}
    report.add("first", lambda: 1 / 0, **of)
    report.add("second", dict, needed=61)
    report.add("third", lambda: {"registers": 128}, needed=50)
    assert report.failed() and list(json.loads((tmp_path / "x.json").read_text())["parts"]) == list(report.parts)
    page = (tmp_path / "x.md").read_text()
    assert "| pong | 4 | chosen | yes | ZeroDivisionError: division by zero |  |  |" in page
    assert "**second**: left out, no time" in page and "**third**: 128 registers" in page
