"""Whether a file can be written, before anything slow starts."""

from __future__ import annotations

import os
from pathlib import Path

from gunreal.config.schema import ConfigError


def check_writable(path: Path, kind: str = "") -> None:
    """Checks that a file can be written or replaced. `kind`, such as "the video ", names it in messages.

    Raises:
      ConfigError: the folder does not exist, the folder or an existing file is not writable, or the name is too long.
    """
    what, folder = f"cannot write {kind}{path}", path.parent
    if os.path.isdir(path) or not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
        raise ConfigError(f"{what}; choose a file in an existing, writable folder")
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise ConfigError(f"{what}; make it writable, or choose another file")
    if len(os.fsencode(path.name)) > os.pathconf(folder, "PC_NAME_MAX"):
        raise ConfigError(f"{what}; its name is too long, choose a shorter one")
