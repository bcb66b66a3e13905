"""How settings are declared."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

AUTO = "auto"  # default of the settings whose value gunreal chooses, see `gunreal.config.resolve`


def field(default: Any, help: str, of: tuple[str, ...] = (), **limits: Any) -> Any:
    """A field of the configuration.

    Args:
      of: what it belongs to, names in `gunreal.config.checks.BELONGING`. Without one of them, it has no effect.
      **limits: `choices`, `low` and `high` (inclusive), `above` and `below`.
    """
    metadata = {"help": help, "of": of, **limits}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Settings:
    """A group of fields. Its name is the title of a section of the help text.

    Attributes:
      of: what all its fields belong to.
    """

    of: ClassVar[tuple[str, ...]] = ()
