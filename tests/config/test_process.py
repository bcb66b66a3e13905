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


def test_the_standard_library_is_found_before_modules_of_the_user(folder):
    """And theirs are found: in agents, in the check of the environment, and when a run is evaluated."""
    train = "-m gunreal.train --env mine:make --agents 2 --steps 400 --min_batch 40 --hidden 16 --name x"
    for command in (train, "-P -m gunreal evaluate runs/x --episodes 1"):
        done = subprocess.run([sys.executable, *command.split()], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "of the user" not in done.stderr and "failed" not in done.stderr


def test_a_terminal_may_lack_letters(tmp_path):
    run_dir = tmp_path / "Läufe" / "größer"
    run_dir.mkdir(parents=True)
    save(Config(name="größer"), run_dir / "config.toml")
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "gunreal", "runs", "--logdir", "Läufe"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and r"gr\xf6\xdfer" in done.stdout, done.stderr
