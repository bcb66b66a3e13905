"""gunreal: actor-critic training with auxiliary tasks as plug-ins, as in GA3C and UNREAL.

A script needs only `train`, `resume`, `load` and `Config`. To write a task, use `AuxiliaryTask` and `check_task`. To
write a network, use `Architecture` and `check_network`. To write an objective, use `Objective` and `check_objective`.
"""

from __future__ import annotations

import sys

if sys.argv[:1] == ["-m"]:  # `python -m gunreal.train`, which has put the current folder first
    from gunreal.config.process import set_up

    set_up()

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gunreal import envs as envs  # registers the library's ids with Gymnasium, and loads none of the environments
from gunreal.config.schema import Config, ConfigError
from gunreal.config.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from gunreal.compare import compare
    from gunreal.envs.step import AgentFailure
    from gunreal.hub import load_from_hub, push_to_hub
    from gunreal.learning.architecture import Architecture
    from gunreal.learning.contract import check_network
    from gunreal.learning.objective import Objective
    from gunreal.learning.task import AuxiliaryTask
    from gunreal.run import Run, load
    from gunreal.testing import check_objective, check_task
    from gunreal.train import resume, train

__all__ = ["AgentFailure", "Architecture", "AuxiliaryTask", "Config", "ConfigError", "Objective", "Run"]
__all__ += ["check_network", "check_objective", "check_task", "compare", "load", "load_from_hub", "push_to_hub"]
__all__ += ["resume", "train"]

_LAZY = {"train": "gunreal.train", "resume": "gunreal.train", "load": "gunreal.run", "Run": "gunreal.run"}
_LAZY |= {"load_from_hub": "gunreal.hub", "push_to_hub": "gunreal.hub"}
_LAZY |= {"Architecture": "gunreal.learning.architecture", "check_network": "gunreal.learning.contract"}
_LAZY |= {"compare": "gunreal.compare"}
_LAZY |= {"AgentFailure": "gunreal.envs.step"}
_LAZY |= {"AuxiliaryTask": "gunreal.learning.task", "check_task": "gunreal.testing"}
_LAZY |= {"Objective": "gunreal.learning.objective", "check_objective": "gunreal.testing"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'gunreal' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


class _Package(ModuleType):
    """Keeps `gunreal.train` the function even after the module `gunreal.train` has been imported, and `compare` too.

    Everything else in these modules is still available, as in `from gunreal.train import main`.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("train", "compare") and isinstance(value, ModuleType):
            return  # Python sets an imported module as an attribute of its package
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
