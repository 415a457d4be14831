"""Tests the options of a build."""

from __future__ import annotations

import pytest

from suffolk.datastore.errors import InvalidArgument
from tests.support.build_blocks import options


def test_options_are_checked() -> None:
    for more, message in (
        ({"segment_tokens": 0}, "segment_tokens is 0; it must be between 1 and"),
        ({"threads": -1}, "threads is -1; it must be between 0 .every core. and 1024"),
        ({"token_format": "u8"}, "token_format is 'u8'; it must be one of u16, u32"),
        ({"mode": "merge"}, "mode is 'merge'; it must be one of new, append, replace"),
        ({"text_field": ""}, "text_field is ''; it must be the name of a field"),
        (
            {"extensions": (".py", "*.md")},
            r"extensions is .py,\*.md; it must be endings, such as .py,.md",
        ),
        ({"extensions": (".py .md",)}, "extensions is .py .md; it"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            options("x", **more)
    with pytest.raises(InvalidArgument, match="corpora: none given"):
        options()
