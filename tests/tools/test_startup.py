from __future__ import annotations

import pytest
import startup


def test_milestones_are_reached_in_order(capfd):
    flags = "--env gunreal/Catch-v0 --agents 2 --agents_per_process 2 --t_max 5 --min_batch 10 --metrics_seconds 0.1"
    assert startup.main([*flags.split(), "--algorithm", "a3c", "--hidden", "8", "--repeats", "1"]) == 0
    head, *rows = capfd.readouterr().out.splitlines()
    assert head.split() == ["seconds", "CPU", "of", "this", "phase", "milestone"]
    milestones = [" ".join(row.split()[3:]) for row in rows]
    assert milestones[:4] == ["gunreal imported", "environment checked", "framework imported", "network built"]
    assert milestones[4:] == ["functions traced", "first agent step", "first trained step", "first line of metrics"]
    wall = [float(row.split()[0]) for row in rows]
    assert wall == sorted(wall) and wall[0] > 0


def test_medians():
    runs = [{"a": (1.0, 0.5), "b": (4.0, 2.0)}, {"a": (3.0, 0.7), "b": (9.0, 2.5)}, {"a": (2.0, 0.6), "b": (5.0, 2.6)}]
    assert [row.split() for row in startup.table(runs).splitlines()[1:]] == [
        ["2.0", "0.6", "0.6", "a"],
        ["5.0", "2.5", "1.9", "b"],
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--repeats", "0"], "--repeats is 0"),
        (["--env", "None-v0"], "unknown environment"),
        (["--stesp", "3"], "unknown flag --stesp"),
        (["--runner", "device"], "only agent processes on one machine"),
    ],
)
def test_bad_input_is_one_line(capsys, words, reason):
    assert startup.main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"startup.py: {reason}") and error.count("\n") == 1
