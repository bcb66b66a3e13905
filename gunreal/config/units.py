"""Parsing of numbers with units, such as 8M steps or 2GiB of memory."""

from __future__ import annotations

_COUNTS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_count(text: str) -> int:
    """Parses a whole number such as `8000000`, `8_000_000`, `8e6` or `8M`. Raises ValueError."""
    return _scaled(text, _COUNTS, "a whole number such as 8000000, 8e6 or 8M")


def parse_size(text: str) -> int:
    """Parses a number of bytes such as `800MB`, `2GiB` or `1_000_000`. Raises ValueError."""
    return _scaled(text, _BYTES, "a size such as 800MB or 2GiB, or a number of bytes")


def _scaled(text: str, units: dict[str, int], expected: str) -> int:
    number = text.strip().rstrip("BKMGTIbkmgti")
    unit = text.strip()[len(number) :].upper()
    try:
        try:
            value: float = int(number) * units[unit]  # exact even beyond a float's 53 bits
        except ValueError:
            value = float(number) * units[unit]
        if value == int(value):
            return int(value)
    except (KeyError, ValueError, OverflowError):
        pass
    raise ValueError(f"{text!r} is not {expected}")
