"""What errors of Ray say. A message of Ray may have dozens of lines."""

from __future__ import annotations


def in_one_line(error: BaseException) -> str:
    """The last line of a traceback says what happened. Ray's own errors begin with it, and end with possible causes."""
    text = str(error).partition(" Some common causes include:")[0]
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()] or [repr(error)]
    return lines[0] if len(lines) < 3 else f"{lines[0]} {lines[-1]}"[:300]
