"""The page "Every table and figure": complete, and each of its commands exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import reproduce

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text()
NUMBERED = {"GUNREAL": (14, 2), "GA3C": (7, 3), "Distributed BA3C": (9, 3), "CuLE": (8, 6)}  # figures and tables


def rows(paper: str) -> list[tuple[str, str]]:
    """What stands in the paper, and what stands for it."""
    (section,) = re.findall(rf"^## {paper}\b[^\n]*\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    cells = [line.strip("| ").split(" | ", 1) for line in section.splitlines() if line.startswith("|")]
    return [(left, right) for left, right in cells[2:]]


def numbers(text: str, kind: str) -> list[int]:
    """The numbers in "figures 10, 11 and 12, Breakout" or "figures 1 to 6, structure", with figures or tables."""
    found = []
    for several in re.findall(rf"\b{kind}s? (\d+(?:(?:, | and | to )\d+)*)", text):
        if " to " in several:
            first, last = map(int, several.split(" to "))
            found += range(first, last + 1)
        else:
            found += map(int, re.findall(r"\d+", several))
    return found


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_figure_and_table_stands_there_once(paper):
    found = rows(paper)
    for kind, count in zip(("figure", "table"), NUMBERED[paper], strict=True):
        listed = sorted(number for left, _ in found for number in numbers(left, kind))
        assert listed == list(range(1, count + 1))
    assert all(right.strip(" |") for _, right in found)


def test_the_unnumbered_ones_of_multiverse_too():
    assert len(rows("Multiverse")) == 2


def test_every_command_exists_and_every_experiment_of_a_paper_is_named():
    named = set(re.findall(r"`(?:python tools/reproduce\.py )?((?:ga3c|ba3c|cule)-\w+|fig\d+|multiverse)`", PAGE))
    known = {*reproduce.ALL, *(path.stem for path in (ROOT / "configs" / "sweeps").glob("*.toml"))}
    assert set(re.findall(r"tools/reproduce\.py ([\w-]+)", PAGE)) <= named <= known
    of_papers = {name for name in known if re.match(r"ga3c-|ba3c-|cule-|fig\d", name)}
    assert of_papers == named - {"multiverse"}
