"""Records without a text are left out, counted, and written to a list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suffolk.build_index.builder import build, plan_build
from suffolk.build_index.options import BuildOptions
from suffolk.datastore.errors import InvalidArgument
from tests.support.building import read_documents, write_tokenizer

BAD = [
    '{"id": 1, "text": "one"}',
    '{"id": 2, "text": null}',
    '{"id": 3}',
    '{"id": 4, "text": 4}',
    "{broken",
    '{"text": "without an id"}',
    '{"id": 7, "text": "seven"}',
]
REASONS_OF_BAD = [
    "field 'text' is null or NaN",
    "no field 'text'; the record has id; name the text field with --text-field",
    "field 'text' holds a number, not text; name another field with --text-field",
    "not a JSON value (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)); every record is one "
    "JSON object",
    "no field 'id' (--id-field); name a field that every record has, or leave the option out",
]


def test_bad_records_are_left_out_counted_and_written(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(BAD))
    made = BuildOptions(
        (str(tmp_path / "a.jsonl"),), tmp_path / "store", write_tokenizer(tmp_path), id_field="id", on_error="skip",
        skipped=tmp_path / "skipped.jsonl",
    )  # fmt: skip
    report = build(made)
    assert (report.documents, report.left_out) == (2, 5)
    assert [source for source, _ in read_documents(tmp_path / "store")] == [f"{tmp_path}/a.jsonl#{id}" for id in (1, 7)]
    listed = [json.loads(line) for line in (tmp_path / "skipped.jsonl").read_text().splitlines()]
    assert [each["place"] for each in listed] == [f"{tmp_path}/a.jsonl:{number}" for number in range(2, 7)]
    assert [each["reason"] for each in listed] == REASONS_OF_BAD
    with pytest.raises(
        InvalidArgument, match=r"a\.jsonl:3: no field 'text'; .* leave such records out with --on-error skip"
    ):
        plan_build(BuildOptions((str(tmp_path / "a.jsonl"),), tmp_path / "other", write_tokenizer(tmp_path)))


def test_the_list_of_skipped_records_survives_an_interruption(tmp_path: Path) -> None:
    rows = [{"text": None if number % 3 else "x", "more": "x" * 2000} for number in range(2_400)]
    lines = map(json.dumps, rows)
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    made = BuildOptions(
        (str(tmp_path / "a.jsonl"),), tmp_path / "store", write_tokenizer(tmp_path), segment_tokens=1,
        skipped=tmp_path / "skipped.jsonl", threads=1,
    )  # fmt: skip

    class Stop(Exception): ...

    class Interrupted:
        def note(self, text: str) -> None:
            if text.startswith("sorting segment g000001-00002"):
                raise Stop

        def advance(self, work: str, share: float, facts: str) -> None: ...

    with pytest.raises(Stop):
        build(made, Interrupted())
    assert 0 < (tmp_path / "skipped.jsonl").read_bytes().count(b"\n") < 1_600
    assert build(made).left_out == 1_600
    places = [json.loads(line)["place"] for line in (tmp_path / "skipped.jsonl").read_text().splitlines()]
    assert places == [f"{tmp_path}/a.jsonl:{number}" for number in range(1, 2_401) if (number - 1) % 3]
