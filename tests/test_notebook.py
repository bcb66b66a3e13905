"""The notebook of the documentation runs from its first cell to its last."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebooks" / "quickstart.ipynb"
SMALL = "agents=4, min_batch=40, t_max=5, hidden=16"
BUDGETS = [f"steps=600, runner='serial', {SMALL}", f"steps=600, agents_per_process=4, {SMALL}"]  # of its two trainings


def outputs(cell) -> str:
    """The text of a cell's outputs, and the types of its pictures."""
    return " ".join(f"{output.get('text', '')} {output.get('data', {})}" for output in cell["outputs"])


def test_the_notebook_runs(tmp_path):
    """Trainings have a tiny budget. A cell that raises fails the test with its traceback."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    for module in ("ipykernel", "matplotlib", "imageio_ffmpeg"):
        pytest.importorskip(module)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    budgets = iter(BUDGETS)
    for cell in notebook["cells"]:
        cell["source"] = re.sub("steps=60_000", lambda _: next(budgets), cell["source"])
    assert next(budgets, None) is None
    patience, resources = {"timeout": None, "startup_timeout": 600}, {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, **patience, resources=resources).execute()
    found = {cell["source"]: outputs(cell) for cell in notebook["cells"] if cell["cell_type"] == "code"}
    shown = {last: next(text for source, text in found.items() if last in source) for last in ("plot()", "video(")}
    assert "image/png" in shown["plot()"] and "video/mp4" in shown["video("]
    scores = next(text for source, text in found.items() if "policy.act" in source)
    assert len(re.findall(r"-?1\.0", scores)) == 10
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"quickstart", "next-reward"}
