from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "env_rate.py"


def run(*words):
    return subprocess.run([sys.executable, TOOL, "--seconds", "0.5", *words], capture_output=True, text=True)


@pytest.mark.parametrize("more", [[], ["--env_args", "pixels=gray"]])
def test_it_compares_an_environment_with_its_engine(more):
    done = run("--env", "gunreal/SeekAvoid-v0", "--agents", "2", *more)
    assert done.returncode == 0, done.stderr
    line = r"gunreal/SeekAvoid-v0 x1: ([\d,]+) agent steps/s, bare engine ([\d,]+), ratio (\S+)\n"
    found = re.fullmatch(line, done.stdout)
    ours, engine = (int(found[i].replace(",", "")) for i in (1, 2))
    assert float(found[3]) == pytest.approx(ours / engine, abs=0.002)
