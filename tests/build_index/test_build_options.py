"""Tests the options of a build."""

from __future__ import annotations

import pytest

from suffolk.datastore.errors import InvalidArgument
from tests.support.build_blocks import options


def test_options_are_checked() -> None:
    for more, message in (
        ({"segment_tokens": 0}, "segment tokens: 0 is not allowed; give 1 to"),
        ({"threads": -1}, "threads: -1 is not allowed"),
        ({"token_format": "u8"}, "token format: u8 is not allowed; give u16 or u32"),
        ({"mode": "merge"}, "mode: merge is not allowed; give one of new, append, replace"),
        ({"text_field": ""}, "text field: '' is not allowed"),
        (
            {"extensions": (".py", "*.md")},
            r"extensions: .py,\*.md is not allowed; give endings of names, such as .py,.md",
        ),
        ({"extensions": (".py .md",)}, "extensions: .py .md is not allowed"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            options("x", **more)
    with pytest.raises(InvalidArgument, match="corpora: none given"):
        options()
