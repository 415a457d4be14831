"""Reads and shows amounts with decimal units: 1e12, 1T, 100G."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}


def read_amount(text: str) -> int:
    """The whole number that a text such as 1e12, 1T, 2.5G or 64 stands for. Raises ValueError if it stands for none."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    try:
        value = Decimal(text[: len(text) - len(unit)]) * UNITS[unit]
    except (InvalidOperation, KeyError) as error:
        raise ValueError(f"{text!r} is no amount") from error
    if not value.is_finite() or value != int(value):
        raise ValueError(f"{text!r} is no whole number")
    return int(value)


def amount(value: float) -> str:
    """A number with three digits and a decimal unit, such as 6.13T."""
    for unit, size in reversed(UNITS.items()):
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def size(value: float) -> str:
    """Bytes with three digits, such as 6.13 TB."""
    shown = amount(value)
    return f"{shown[:-1]} {shown[-1]}B" if shown[-1:].isalpha() else f"{shown} B"
