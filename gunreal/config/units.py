"""Parsing of numbers with units, such as 8M steps or 2GiB of memory."""

from __future__ import annotations

import decimal
import math

_EXACT = decimal.Context(prec=400)  # digits, enough for every number within the range of floats
_COUNTS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_count(text: str) -> int:
    """Parses a whole number such as `8000000`, `8_000_000`, `8e6` or `8M`. Raises ValueError."""
    return _scaled(text, _COUNTS, "a whole number such as 8000000, 8e6 or 8M")


def parse_size(text: str) -> int:
    """Parses a number of bytes such as `800MB`, `2GiB` or `1_000_000`, rounded to whole bytes. Raises ValueError."""
    return _scaled(text, _BYTES, "a size such as 800MB or 2GiB, or a number of bytes", rounds=True)


def _scaled(text: str, units: dict[str, int], expected: str, rounds: bool = False) -> int:
    number = text.strip().rstrip("BKMGTIbkmgti")
    unit = text.strip()[len(number) :].upper()
    try:
        if math.isfinite(float(number) * units[unit]):
            value = _EXACT.multiply(decimal.Decimal(number), units[unit])  # as a float, 4.1 * 10**6 is not whole
            whole = value.to_integral_value()
            if whole == value or (rounds and whole):  # 0 would be another setting than 0.3 bytes
                return int(whole)
    except (KeyError, ValueError, decimal.InvalidOperation):
        pass
    raise ValueError(f"{text!r} is not {expected}")
