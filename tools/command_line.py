"""What the tools' commands have in common."""

from __future__ import annotations

import argparse
import time
from typing import Any, NoReturn

from gunreal.config import ConfigError


class Parser(argparse.ArgumentParser):
    """Bad flags are a ConfigError, as all bad input; the description is shown as it is written."""

    def __init__(self, program: str, description: str | None, **options: Any):
        super().__init__(
            program,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **options,
        )

    def error(self, message: str) -> NoReturn:
        """Raises it."""
        raise ConfigError(message)


def say(text: str) -> None:
    """Prints a line with the time."""
    print(f"{time.strftime('%H:%M')} {text}", flush=True)
