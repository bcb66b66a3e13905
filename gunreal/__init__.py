"""gunreal: GA3C with UNREAL's auxiliary tasks as plug-ins. `train`, `load` and `Config` are all that a script needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gunreal.config.schema import Config, ConfigError

if TYPE_CHECKING:
    from gunreal.run import Run, load
    from gunreal.train import train

__all__ = ["Config", "ConfigError", "Run", "load", "train"]
__version__ = "0.1.0"

_LAZY = {"train": "gunreal.train", "load": "gunreal.run", "Run": "gunreal.run"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'gunreal' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)
