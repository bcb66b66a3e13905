from __future__ import annotations

import pytest

from gunreal.config.units import parse_count, parse_size


@pytest.mark.parametrize("text", ["8000000", "8_000_000", "8e6", "8M", " 8m ", "0.008G", "8000K"])
def test_counts(text):
    assert parse_count(text) == 8_000_000


def test_counts_are_exact():
    assert parse_count(str(2**53 + 1)) == 2**53 + 1
    assert parse_count(f"{2**99 + 1}K") == (2**99 + 1) * 1000
    for hundredths in range(1, 1000):  # as floats, 34 of them are not whole, such as 4.1 * 10**6
        assert parse_count(f"{hundredths / 100:.2f}M") == hundredths * 10_000


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("800MB", 800_000_000),
        ("2GiB", 2**31),
        ("1.5 GB", 1_500_000_000),
        ("7", 7),
        ("64kib", 65536),
        ("9 B", 9),
        ("3KB", 3000),
        ("2TB", 2 * 10**12),
        ("5MiB", 5 * 2**20),
        ("1TiB", 2**40),
        ("1.1GiB", 1_181_116_006),  # 1181116006.4
        ("0.7KiB", 717),  # 716.8
        ("0", 0),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "0.5", "1.2345k", "8X", "8MB", "8__0", "eight", "nan", "inf", "1e300G",
                                  "1e999999999", f"1e-{10**20}"])  # fmt: skip
def test_invalid_counts_are_rejected(text):
    with pytest.raises(ValueError, match="is not a whole number such as"):
        parse_count(text)


@pytest.mark.parametrize("text", ["", "800M", "2 lots", "0.3B", "0.0001KB", "GB"])
def test_invalid_sizes_are_rejected(text):
    with pytest.raises(ValueError, match="is not a size such as"):
        parse_size(text)
