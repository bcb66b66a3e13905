from __future__ import annotations

import io
import re
import sys

import pytest
from broken_pipes import unread
from rich.console import Console

from gunreal.config.schema import Config
from gunreal.records.display import Display, _count, sparkline
from gunreal.records.metrics import RunMetrics

CONFIG = Config(env="ALE/Breakout-v5", tasks=("pc", "vr"), steps=1_000_000, name="my-run")


def snapshots(count: int) -> list[dict]:
    metrics = RunMetrics(("base", "pc"), ("pc", "vr"))
    gauges = {"agents": 32, "predictors": 2, "trainers": 1, "memory_bytes": 3 << 30, "memory_limit": 8 << 30}
    lines = []
    for i in range(1, count + 1):
        metrics.acted(20_000)
        metrics.predicted("base", 16)
        metrics.trained(160, [1, 5], {"loss_pc": 0.25, "loss_vr": 0.125, "entropy": 1.5, "learning_rate": 7e-4})
        if i > 1:
            metrics.episode(10.0 * i)
        lines.append(metrics.snapshot(gauges, {"base": 4, "pc": 1, "train": 6}, metrics._start + 10 * i))
    return lines


def terminal(width: int = 100) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, record=True)


def text(display: Display, line: dict, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(display.render(line))
    return console.export_text()


def test_the_panel_shows_everything():
    console = terminal()
    with Display(CONFIG, console=console) as display:
        for line in snapshots(5):
            display.update(line)
        shown = text(display, line)
    for expected in (
        *("my-run", "ALE/Breakout-v5", "pc, vr", "10.0%", "100k of 1M steps", "0:00:50 taken", "0:07:30 left"),
        *("score 35.00", "max 50.00", "last 4 of 4 episodes", "▁", "█", "2,000", "32  2  1", "3.0/8.0 GiB 38%"),
        *("3.0  max 5", "queue base", "4  batch 16", "queue train", "6  batch 160", "loss pc", "0.2500", "0.1250"),
        *("1.500", "7.00e-04"),
    ):
        assert expected in shown, expected
    assert "\x1b[" in console.file.getvalue() and "my-run" in console.file.getvalue()


def test_a_cluster_has_a_row_for_each_node():
    (line,) = snapshots(1)
    line |= {"nodes": 2, "node0_pps": 1234.4, "node0_lag": 2.25, "node0_missed": 3}
    line |= {"node10_pps": 56.0, "node10_lag": None, "node10_missed": 0}
    rows = [row.strip(" │").split() for row in text(Display(CONFIG, console=terminal()), line).splitlines()]
    assert ["node", "PPS", "lag", "rounds", "missed"] in rows
    assert ["0", "1,234", "2.2", "3"] in rows and ["10", "56", "-", "0"] in rows


def test_skipped_updates_and_restarted_processes_are_shown():
    (line,) = snapshots(1)
    display = Display(CONFIG, console=terminal())
    assert not any(word in text(display, line) + display.line(line) for word in ("skipped", "restarts"))
    line |= {"skipped": 1200, "restarts": 3}
    assert re.search(r"skipped +1200\b.*restarts +3\b", text(display, line), re.DOTALL)
    assert "1,200 updates skipped, because they were not finite" in display.line(line)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_the_panel_fits_any_width(width):
    display = Display(CONFIG, console=terminal(width))
    for line in snapshots(2):
        display.update(line)
    assert max(map(len, text(display, line, width).splitlines())) <= width


def test_nothing_known_yet():
    metrics = RunMetrics()
    line = metrics.snapshot({}, {}, metrics._start + 1)
    display = Display(CONFIG, console=terminal())
    assert "? left" in text(display, line)
    assert display.line(line)


def test_plain_lines_are_aligned():
    out = io.StringIO()
    with Display(CONFIG, console=Console(file=out, force_terminal=False, width=40)) as display:
        for line in snapshots(12):
            display.update(line)
    lines = out.getvalue().splitlines()
    assert len(lines) == 12
    assert "\x1b" not in out.getvalue()
    assert {line.index("pps") for line in lines} == {lines[0].index("pps")}
    assert {line.index("pc=0.2500") for line in lines} == {lines[0].index("pc=0.2500")}
    for expected in ("240k/1M", "24%", "0:02:00", "left", "score    70.00", "max   120.00", "N 32/2/1", "lag   3.0"):
        assert expected in lines[-1], expected


def test_the_unit_of_a_count_suits_the_rounded_number():
    shown = {999: "999", 12_345: "12.3k", 999_499: "999k", 999_500: "1M", 1_234_567: "1.23M", 999_500_000: "1G"}
    assert {value: _count(value) for value in shown} == shown


@pytest.mark.parametrize("is_terminal", [False, True])
def test_evaluations_are_shown(is_terminal):
    out = io.StringIO()
    line = snapshots(1)[0] | {"eval_step": 12000, "eval_score_mean": 18.25, "eval_score_std": 0.5}
    with Display(CONFIG, console=Console(file=out, force_terminal=is_terminal, width=100)) as display:
        display.update(line)
    assert "evaluation of step 12,000: score 18.25 (standard deviation 0.50)" in out.getvalue()


def test_time_left_is_by_the_speed_of_this_session():
    display = Display(CONFIG, console=terminal())
    display.update({"step": 500_000, "seconds": 9000.0, "pps": 0.0})  # a resumed run
    assert display.eta({"step": 500_000, "seconds": 9000.0, "pps": 1000.0}) == 500
    assert display.eta({"step": 600_000, "seconds": 9100.0, "pps": 1.0}) == 400
    assert display.eta({"step": 1_000_100, "seconds": 9500.0, "pps": 1.0}) == 0


class ClosedPipe(io.StringIO):
    def write(self, _: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_closed_output_never_stops_the_run(is_terminal, capsys):
    with Display(CONFIG, console=Console(file=ClosedPipe(), force_terminal=is_terminal)) as display:
        for line in snapshots(3):
            display.update(line)
        display.update({"no": "step"})
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1 and "the display stopped" in warning


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TERM"])
def test_a_file_and_a_dumb_terminal_get_plain_lines(variable, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    dumb = variable == "TERM" and Console(file=sys.stdout, force_terminal=True, _environ={"TERM": "dumb"})
    with Display(CONFIG, console=dumb or None) as display:
        for line in snapshots(3):
            display.update(line)
    out = capsys.readouterr().out
    assert out.count("\n") == 3 and "20k/1M" in out and "\x1b[2K" not in out


def test_a_reader_that_goes_away_never_stops_the_run(monkeypatch, capsys):
    """As in `gunreal train | head`."""
    out = unread()
    monkeypatch.setattr(sys, "stdout", out)
    with Display(CONFIG) as display:
        display.message("training")
        display.update(snapshots(1)[0])
    monkeypatch.undo()
    with pytest.raises(BrokenPipeError):  # it is still the pipe, with the text that nobody has read
        out.close()
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1 and "the display stopped" in warning and "nothing reads standard output" in warning


def test_sparkline():
    assert sparkline([], 10) == ""
    assert sparkline([3, 3], 10) == "▁▁"
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 7, 7], 2) == "▁█"
    assert len(sparkline(range(1000), 37)) == 37
