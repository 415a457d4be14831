"""Tests files of texts and records in forms that other tools write by default."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suffolk.datastore.errors import InvalidArgument
from tests.build_index.test_input_forms import texts


def test_strings_are_texts(tmp_path: Path) -> None:
    """Of an array only if they are long: shorter ones are names in a file of settings."""
    found = [f"A text of forty characters or more, {number}, with \\n and é.\n" for number in range(30)]
    (tmp_path / "a.json").write_text(json.dumps(found, indent=1))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(text) + "\n" for text in ("x", *found)))
    assert texts(tmp_path) == (
        [*found, "x", *found],
        [f"a.json:{number}" for number in range(1, 31)] + [f"b.jsonl:{number}" for number in range(1, 32)],
    )
    with pytest.raises(InvalidArgument, match=r"b.jsonl:1: a JSON str, not an object"):
        texts(tmp_path / "b.jsonl", records="chat")


def test_the_columns_that_pandas_writes_by_default_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"text": {"0": "a", "1": "b"}}))
    with pytest.raises(
        InvalidArgument, match=r"holds dict, not text; .* as pandas does with orient='records', lines=True"
    ):
        texts(tmp_path)
