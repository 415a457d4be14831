"""Tests documents of lines, texts and rows, with their names and fields."""

from __future__ import annotations

import gzip
import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from suffolk.build_index.block import Lines, Texts, TokenRun
from suffolk.build_index.documents import MAX_TEXT_CHARACTERS, parse_documents
from suffolk.build_index.encode_block import BlockEncoder, EncodeSetup
from suffolk.datastore.errors import InvalidArgument
from tests.support.build_blocks import blocks, options


def test_fields_of_records_are_kept_as_metadata(tmp_path: Path) -> None:
    record = {"text": "one", "license": "mit", "repo": {"name": "a/b", "stars": 3}, "repo.fork": False, "none": None}
    fields = ("license", "repo.name", "repo.stars", "repo.fork", "none", "missing", "repo.name.deeper")
    kept = {"license": "mit", "repo.name": "a/b", "repo.stars": 3, "repo.fork": False}
    lines = Lines("s.jsonl", 1, json.dumps(record).encode() + b'\n{"text": "two"}\n')
    places = ["s.jsonl:1", "s.jsonl:2"]
    found = parse_documents(lines, options("s", metadata=fields))
    assert found.origins == list(zip(places, [kept, {}], strict=True))
    assert parse_documents(lines, options("s")).origins == [(place, {}) for place in places]
    for column, values in (("text", ["one", "two"]), ("input_ids", [[1, 2], [3]])):
        rows = {"repo": [record["repo"], None], "license": ["mit", None], "repo.fork": [False, None], column: values}
        parquet.write_table(pyarrow.table(rows), tmp_path / "a.parquet")
        (block,) = blocks(tmp_path / "a.parquet", tokenizer="some", metadata=fields)
        chosen, payload = options("s", metadata=fields), block.payload
        found = payload if isinstance(payload, TokenRun) else parse_documents(payload, chosen)
        assert [metadata for _, metadata in found.origins or ()] == [kept, {}]
    encoder = BlockEncoder(EncodeSetup(options("a", end_of_document=0), None, False, 500))
    encoded = encoder.encode(TokenRun("p", 0, np.array([1, 2, 0, 3, 4]), (0, 3), (("p#a", kept), ("p#b", {}))))
    assert encoded.origins == [("p#a", kept), ("p#b", {})]


def test_values_of_parquet_are_those_of_json(tmp_path: Path) -> None:
    """As Spark writes maps, pandas times, and polars NaN; JSON has maps as objects, times as text, and null."""
    moment = pyarrow.array([1580000000000000123] * 2).cast(
        pyarrow.timestamp("ns", "UTC")
    )  # no Python type has nanoseconds
    rows = {
        "doc": pyarrow.array(
            [[("body", "one"), ("license", "mit")], None], pyarrow.map_(pyarrow.string(), pyarrow.string())
        ),
        "seen": moment,
        "repo": pyarrow.StructArray.from_arrays([moment], ["pushed"]),
        "log": pyarrow.array([[("at", 1580000000000000123)]] * 2, pyarrow.map_(pyarrow.string(), moment.type)),
        "took": pyarrow.array([1500000000] * 2, pyarrow.duration("ns")),
        "hour": pyarrow.array([3600000000005] * 2, pyarrow.time64("ns")),
        "day": pyarrow.array([date(2020, 1, 2)] * 2),
        "price": pyarrow.array([Decimal("1.50")] * 2),
        "score": pyarrow.array([float("nan"), 0.5]),
    }
    parquet.write_table(pyarrow.table(rows), tmp_path / "a.parquet")
    chosen = {"text_field": "doc.body", "metadata": ("doc.license", "seen", "repo.pushed", "day", "price", "score")}
    chosen["metadata"] += ("log.at", "took", "hour")
    (block,) = blocks(tmp_path / "a.parquet", tokenizer="some", on_error="skip", **chosen)
    found = parse_documents(block.payload, options("s", on_error="skip", **chosen))
    then = "2020-01-26T00:53:20+00:00"
    kept = {"doc.license": "mit", "seen": then, "repo.pushed": then, "day": "2020-01-02", "price": "1.50"}
    kept |= {"log.at": then, "took": "0:00:01.500000", "hour": "01:00:00"}
    assert (found.texts, [metadata for _, metadata in found.origins], len(found.left_out)) == (["one"], [kept], 1)


def test_nanoseconds_inside_of_lists(tmp_path: Path) -> None:
    """Of messages with their times."""
    moment = pyarrow.timestamp("ns")
    for kind in (pyarrow.list_(moment), pyarrow.large_list(moment), pyarrow.list_(moment, 1)):
        message = pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string()), ("at", kind)])
        rows = [[{"role": "user", "content": "a", "at": [1580000000000000123]}]]
        parquet.write_table(pyarrow.table({"messages": pyarrow.array(rows, pyarrow.list_(message))}), tmp_path / "a")
        (block,) = blocks(tmp_path / "a", tokenizer="some")
        assert block.payload.rows[0]["messages"][0]["at"] == ["2020-01-26T00:53:20"]


def test_fields_ids_and_line_numbers() -> None:
    data = b'\n{"meta": {"path": "p/q.py"}, "text": "one"}\n{"text.x": "two", "meta": {"path": 7}}\n'
    lines = Lines("s.jsonl", 5, data[: data.index(b'{"text.x')])
    assert parse_documents(lines, options("s")).origins == [("s.jsonl:6", {})]
    assert parse_documents(lines, options("s", id_field="meta.path")).origins == [("s.jsonl#p/q.py", {})]
    second = Lines("s.jsonl", 7, data[data.index(b'{"text.x') :])
    assert parse_documents(second, options("s", text_field="text.x")).texts == ["two"]
    with pytest.raises(
        InvalidArgument, match=r"s\.jsonl:7: no field 'text'; the record has meta, text\.x; name .* --text-field"
    ):
        parse_documents(second, options("s"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{broken", r"s:1: not a JSON value .*; every record is one JSON object"),
        (b"[1, 2]", "s:1: an array, not an object"),
        (
            b'{"text": 3}',
            "s:1: field 'text' holds a number, not text; name another field .*; or leave .* --on-error skip",
        ),
        (b"[" * 100_000, "s:1: not a JSON value that can be read: it is nested too deep; correct the line"),
        (
            b'{"text": "a", "n": ' + b"7" * 5000 + b"}",
            "^s:1: not a JSON value that can be read: it holds a number with too many digits; correct",
        ),
    ],
)
def test_wrong_lines_are_named(line: bytes, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        parse_documents(Lines("s", 1, line), options("s"))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path, ending: str) -> None:
    data = b'\xef\xbb\xbf{"text": "one"}\n{"text": "two"}\n'
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(gzip.compress(data) if ending else data)
    (block,) = blocks(path)
    assert parse_documents(block.payload, options("s")).texts == ["one", "two"]


def test_invalid_utf8_is_replaced_and_counted() -> None:
    found = parse_documents(Texts((("a", b"ok \xff\xfe \xef\xbf\xbd end"), ("b", "fine"))), options("s"))
    assert found.texts == ["ok \ufffd\ufffd \ufffd end", "fine"]
    assert found.replaced == 2
    half = parse_documents(Lines("s", 1, b'{"text": "a\\ud800b"}\n{"text": "c\xff"}'), options("s"))
    assert half.texts == ["a\ufffdb", "c\ufffd"]
    assert half.replaced == 2


def test_very_long_texts_are_cut_at_a_line_end() -> None:
    text = "line of text\n" * (MAX_TEXT_CHARACTERS // 8)
    found = parse_documents(Texts((("a", text),)), options("s"))
    assert len(found.texts) == 2
    assert "".join(found.texts) == text
    assert found.texts[0].endswith("\n")
    assert found.origins == [("a", {}), ("a", {})]


@pytest.mark.parametrize(
    "kind", [pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())]
)
def test_parquet_text_that_is_no_utf8_is_replaced_and_counted(tmp_path: Path, kind: pyarrow.DataType) -> None:
    """Regression: invalid UTF-8 in Parquet used to end a build with a Python error.

    Builds of JSON lines and text files continued.
    """
    text = pyarrow.array([b"ok \xff\xfe end", "fin\u00e9".encode()]).cast(pyarrow.string(), safe=False)
    text = text.dictionary_encode() if pyarrow.types.is_dictionary(kind) else text.cast(kind)
    parquet.write_table(pyarrow.table({"text": text, "id": ["a", "b"]}), tmp_path / "a.parquet")
    (block,) = blocks(tmp_path / "a.parquet", id_field="id")
    found = parse_documents(block.payload, options("s"))
    assert found.texts == ["ok \ufffd\ufffd end", "fin\u00e9"]
    assert (found.replaced, found.text_bytes) == (2, 14)
    for more in ({"id_field": "text"}, {"metadata": ("text",)}):
        with pytest.raises(
            InvalidArgument, match=r"a\.parquet: text holds text that is not UTF-8 .*; correct it, or name"
        ):
            blocks(tmp_path / "a.parquet", **more)
