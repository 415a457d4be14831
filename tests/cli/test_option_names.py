"""Error messages of the library name fields by their command-line options."""

from __future__ import annotations

import pytest

from suffolk.cli.option_names import name_options

LABELS = {
    "held_out": "--held-out",
    "cache_bytes": "--feature-cache",
    "window": "--window",
    "max_match": "--max-match",
    "seed": "x.toml: seed",
    "top_p": "x.toml: top_p in [generate]",
}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("held_out is 2; it must be between 0 and 0.5", "--held-out is 2; it must be between 0 and 0.5"),
        ("cache_bytes is -1; it must be 0 or more", "--feature-cache is -1; it must be 0 or more"),
        ("one document; give held_out 0", "one document; give --held-out 0"),
        ("x.toml: top_p in [generate] is 2", "x.toml: top_p in [generate] is 2"),
        ("max_match 16 + max_depth 10 is above 20", "--max-match 16 + max_depth 10 is above 20"),
        ("window is 3; it must be between 8 and 9", "--window is 3; it must be between 8 and 9"),
        ("window: 4 now, and 8 in the run to resume", "--window: 4 now, and 8 in the run to resume"),
        ("the window is 3", "the window is 3"),
        ("seed is -1; it must be 0 or more", "x.toml: seed is -1; it must be 0 or more"),
        ("head is 3", "head is 3"),
        ("--held-out is 2", "--held-out is 2"),
        ("/tmp/held_out/x: no such file", "/tmp/held_out/x: no such file"),
        ("x.json: 'held_out' is missing", "x.json: 'held_out' is missing"),
    ],
)
def test_fields_are_called_by_their_options(message: str, expected: str) -> None:
    assert name_options(message, LABELS) == expected


def test_without_labels_nothing_changes() -> None:
    assert name_options("held_out is 2", {}) == "held_out is 2"
