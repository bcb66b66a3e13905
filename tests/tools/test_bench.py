"""The benchmark of the emulator: what it measures and prints."""

from __future__ import annotations

import importlib.util

from emulators import main


def test_all_rates_and_ratios_of_a_game_are_printed(capsys):
    assert main(["bench", "--games", "pong", "--frames", "64", "--rounds", "1"]) == 0
    head, _, row, _, *summary = capsys.readouterr().out.splitlines()
    cells = dict(zip(head.split(" | "), row.split(" | "), strict=True))
    rates = {name: float(cell.replace(",", "")) for name, cell in cells.items() if cell.strip() and "/s" in name}
    has_envpool = importlib.util.find_spec("envpool") is not None
    assert len(rates) == 5 + has_envpool and min(rates.values()) > 0
    ratio = rates["gunreal, agent steps/s"] / rates["ale-py, agent steps/s"]
    assert abs(float(cells["gunreal / ale-py"]) - ratio) < 0.02
    assert len(summary) == 1 + has_envpool and summary[0].startswith("gunreal / ale-py: median")
