"""A user's folder may have files with the names of modules of the standard library."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gunreal.config.files import save
from gunreal.config.schema import Config

MINE = """
import gymnasium


def make():
    return gymnasium.make("CartPole-v1")
"""


@pytest.fixture
def folder(tmp_path):
    for name in ("struct", "pickle", "queue", "token", "random", "select", "json", "typing"):
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('the {name} of the user')\n")
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


@pytest.mark.parametrize("start", [["-m", "gunreal.train"], ["-P", "-m", "gunreal", "train"]])
def test_the_standard_library_is_found_before_modules_of_the_user(folder, start):
    """And theirs are found: in agents, in the check of the environment, and when a run is evaluated."""
    flags = "--env mine:make --agents 2 --steps 400 --min_batch 40 --hidden 16 --name x"
    for command in ([*start, *flags.split()], ["-P", "-m", "gunreal", "evaluate", "runs/x", "--episodes", "1"]):
        done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "of the user" not in done.stderr and "failed" not in done.stderr


@pytest.mark.parametrize("start", [["-m", "gunreal.runs"], ["-m", "gunreal", "runs"]])
def test_a_terminal_may_lack_letters(start, tmp_path):
    run_dir = tmp_path / "Läufe" / "größer"
    run_dir.mkdir(parents=True)
    save(Config(name="größer"), run_dir / "config.toml")
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, *start, "--logdir", "Läufe"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and r"gr\xf6\xdfer" in done.stdout, done.stderr
