"""Makes text from files safe to print on a terminal."""

from __future__ import annotations


def printable(name: str) -> str:
    """``name`` with each unprintable character escaped, because control characters change the terminal's state."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in name)
