"""Amounts are read and shown with decimal units."""

from __future__ import annotations

import pytest

from suffolk.capacity.need import amount, read_amount, size


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e12", 10**12), ("1T", 10**12), ("100G", 10**11), ("2.5k", 2500), ("64", 64), ("0", 0), ("-1", -1)],
)
def test_amounts_are_read(text: str, value: int) -> None:
    assert read_amount(text) == value


@pytest.mark.parametrize("text", ["", "T", "1X", "1.5", "nan", "inf", "1e-3", "12 12", "1TT"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        read_amount(text)


def test_amounts_are_shown() -> None:
    assert [amount(value) for value in (0, 0.125, 8000, 999_999, 6.13e12)] == ["0", "0.125", "8K", "1M", "6.13T"]
    assert [size(value) for value in (512, 6.13e12)] == ["512 B", "6.13 TB"]
