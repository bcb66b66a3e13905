from __future__ import annotations

import os
from typing import TextIO


def unread() -> TextIO:
    """A stream whose reader is gone. Like every such stream, it raises BrokenPipeError when it is closed with text."""
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w")
