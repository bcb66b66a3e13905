from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "env_rate.py"


def run(*words):
    return subprocess.run([sys.executable, TOOL, "--seconds", "0.5", *words], capture_output=True, text=True)


def test_it_compares_an_environment_with_its_engine():
    done = run("--env", "gunreal/SeekAvoid-v0", "--agents", "2")
    assert done.returncode == 0, done.stderr
    line = r"gunreal/SeekAvoid-v0 x1: ([\d,]+) agent steps/s, bare engine ([\d,]+), ratio (\S+)\n"
    found = re.fullmatch(line, done.stdout)
    ours, engine = (int(found[i].replace(",", "")) for i in (1, 2))
    assert float(found[3]) == pytest.approx(ours / engine, abs=0.002)


def test_other_environments_have_no_engine_to_compare_with():
    done = run("--env", "gunreal/Catch-v0")
    assert done.returncode == 1 and "gunreal/Catch-v0" in done.stderr.splitlines()[-1]
