from __future__ import annotations

import startup


def test_milestones_are_reached_in_order(capfd):
    flags = "--env gunreal/Catch-v0 --agents 2 --agents_per_process 2 --t_max 5 --min_batch 10 --metrics_seconds 0.1"
    assert startup.main([*flags.split(), "--objective", "a3c", "--hidden", "8", "--repeats", "1"]) == 0
    head, *rows = capfd.readouterr().out.splitlines()
    assert head.split() == ["seconds", "CPU", "of", "this", "phase", "milestone"]
    milestones = [" ".join(row.split()[3:]) for row in rows]
    assert milestones[:4] == ["gunreal imported", "environment checked", "framework imported", "network built"]
    assert milestones[4:] == ["functions traced", "first agent step", "first trained step", "first line of metrics"]
    wall = [float(row.split()[0]) for row in rows]
    assert wall == sorted(wall) and wall[0] > 0
