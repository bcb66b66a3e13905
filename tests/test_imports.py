"""Agent processes never load a learning framework: 5 s and 500 MB each, and a hand on the GPU."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import gunreal
import gunreal.acting
import gunreal.config
import gunreal.envs
import gunreal.experience
import gunreal.records
import gunreal.tasks

FRAMEWORKS = ("tensorflow", "jax", "keras", "torch")
ROOMS = (gunreal.config, gunreal.experience, gunreal.envs, gunreal.tasks, gunreal.acting, gunreal.records)


def modules(package: ModuleType) -> list[str]:
    """Names of a package's modules, without those that tasks import inside their methods for the server."""
    names = [f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)]
    return [name for name in names if not name.endswith("_head")]


QUICK = ("train", "__main__", "doctor", "listing", "plot", "runs")  # so is --help
SERVER = ("runtime.ram", "runtime.scheduler", "cluster.reducer")  # the last one starts within a second after a death
AGENT_SIDE = ["gunreal", *(name for room in ROOMS for name in modules(room))]
AGENT_SIDE += [f"gunreal.{name}" for name in (*QUICK, *SERVER)]


def loaded(program: str) -> list[str]:
    """The frameworks that a fresh interpreter has loaded at the end of a program."""
    program += f"\nimport sys; print(*(name for name in {FRAMEWORKS} if name in sys.modules))"
    return subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def test_agent_side_loads_no_framework():
    if loaded(f"import {', '.join(AGENT_SIDE)}"):
        pytest.fail(f"{[name for name in AGENT_SIDE if loaded(f'import {name}')]} load one of {FRAMEWORKS}")


def test_importing_the_package_registers_its_environments():
    program = (
        "import sys, gunreal, gymnasium\n"
        "gymnasium.register_envs(gunreal)\n"
        "ids = {name for name in gymnasium.registry if name.startswith('gunreal/')}\n"
        "assert {'gunreal/Catch-v0', 'gunreal/RareGoalMaze-v0', 'gunreal/NavMazeStatic-v0'} <= ids, ids\n"
        "heavy = {'tensorflow', 'jax', 'keras', 'cv2', 'ale_py', 'vizdoom', 'rich', 'gunreal.envs.catch'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "gymnasium.make('gunreal/Catch-v0').reset(seed=1)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("env", ["ALE/Pong-v5", "CartPole-v1"])
def test_environments_load_no_framework(env: str):
    program = "from gunreal.config.schema import Config; from gunreal.envs.make import make"
    assert not loaded(f"{program}; make(Config(env={env!r}), 1).close()")


def test_the_check_itself_sees_a_framework():
    assert loaded("import sys; sys.modules['keras'] = sys") != []
