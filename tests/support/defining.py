"""Plug-ins that differ from another one in a member or two."""

from __future__ import annotations

import sys


def define(module: str, base: type, **classes: dict) -> None:
    """Defines a class in a module for each name, with other members than its base."""
    for name, members in classes.items():
        setattr(sys.modules[module], name, type(name, (base,), {"__module__": module, **members}))
