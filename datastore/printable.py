"""Names that others chose, as they may be shown on a terminal."""

from __future__ import annotations


def printable(name: str) -> str:
    """``name`` with what is no printable character shown as its escape: it could steer the terminal."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in name)
