"""Tests the rows of a corpus that heads are trained on."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from suffolk.build_index.inputs import find_inputs
from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.serving.decoding.drafters.training.rows import Row, describe_files, read_rows, reading_options
from tests.support.training_runs import conversation, default_options


def rows_of(path: Path, skipped: Counter[str] | None = None) -> list[Row]:
    chosen = reading_options(default_options(path))
    return list(read_rows(find_inputs(chosen), chosen, Counter() if skipped is None else skipped, lambda share: None))


def test_rows_are_texts_files_and_conversations(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("plain")
    lines = [{"text": "one \ud800 half"}, {"messages": conversation("Hi", "x\udfff")}]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert [(row.text, row.messages) for row in rows_of(tmp_path)] == [
        ("plain", None),
        ("one \ufffd half", None),
        (None, conversation("Hi", "x\ufffd")),
    ]
    (first, second) = describe_files(find_inputs(reading_options(default_options(tmp_path))))
    assert first.bytes == 5
    assert first.sha256 == hashlib.sha256(b"plain").hexdigest()
    assert first.sha256 != second.sha256


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"prompt": "x"}', "x.jsonl:1: no field 'text'; the record has prompt; name the text field with"),
        ('{"text": 5}', "x.jsonl:1: field 'text' holds a number, not text; name another field with --text-field"),
        ("[1]", "x.jsonl:1: an array, not an object"),
        ("{", "x.jsonl:1: not a JSON value"),
        ('{"messages": {}}', "no field 'text'; the record has messages; name the text field with"),
        ('{"messages": ["x"]}', "x.jsonl:1: 'messages', message 0 is not an object with a 'role'"),
        ('{"messages": [{"role": "user", "content": 5}]}', "message 0 has content of type int; it must be a text"),
    ],
)
def test_lines_that_hold_nothing_to_learn_are_refused(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "x.jsonl").write_text(line)
    with pytest.raises(InvalidArgument, match=said):
        rows_of(tmp_path / "x.jsonl")


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(9))
    with pytest.raises(InvalidArgument, match="holds token ids; heads learn from text"):
        rows_of(tmp_path / "ids.npy")
    (tmp_path / "gone.txt").write_text("x")
    inputs = find_inputs(reading_options(default_options(tmp_path / "gone.txt")))
    (tmp_path / "gone.txt").unlink()
    with pytest.raises(NotFound, match="the file is gone"):
        describe_files(inputs)
