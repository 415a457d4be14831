"""Parquet and Arrow files with odd types, without columns, encrypted, and with other names."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from pyarrow import feather, parquet

from suffolk.build_index.documents import parse_documents
from suffolk.datastore.errors import InvalidArgument, Unsupported
from tests.build_index.test_arrow_files import TEXTS, texts, write_stream
from tests.support.build_blocks import blocks, options
from tests.support.json_lines import write_rows


def test_categories_of_polars_are_texts(tmp_path: Path) -> None:
    """Their dictionaries hold ``string_view``."""
    column = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0, 1, None, 1], "uint8"), pyarrow.array(TEXTS[:2], "string_view")
    )
    feather.write_feather(pyarrow.table({"text": column}), tmp_path / "a.arrow", compression="uncompressed")
    assert texts(tmp_path) == [TEXTS[0], TEXTS[1], TEXTS[1]]


@pytest.mark.parametrize("name", ["a.arrows", "a.ipc", "a.feather"])
def test_streams_have_several_endings(tmp_path: Path, name: str) -> None:
    write_stream(tmp_path / name, pyarrow.table({"text": TEXTS}))
    assert texts(tmp_path) == TEXTS


def test_a_file_without_columns_lacks_a_text(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"text": TEXTS}).select([]), tmp_path / "a.parquet")
    with pytest.raises(InvalidArgument, match="no column 'text' .* it has no columns"):
        texts(tmp_path / "a.parquet")


def test_an_encrypted_file_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PARE" + bytes(100) + b"PARE")
    with pytest.raises(InvalidArgument, match="encrypted Parquet file \\(decrypt it\\)"):
        texts(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Cannot decrypt ColumnMetadata. FileDecryption is not setup", "an encrypted Parquet file .*; decrypt it"),
        ("Function 'take' has no kernel", "pyarrow cannot read this Parquet file .*; write it with other types"),
    ],
)
def test_what_pyarrow_cannot_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, message: str
) -> None:
    parquet.write_table(pyarrow.table({"text": TEXTS}), tmp_path / "a.parquet")
    kind = OSError if "crypt" in reason else pyarrow.ArrowNotImplementedError

    def refuse(*_: object) -> None:
        raise kind(reason)

    monkeypatch.setattr(parquet, "ParquetFile", refuse)
    with pytest.raises(Unsupported, match=message):
        texts(tmp_path)


def test_times_beyond_the_calendar_are_refused(tmp_path: Path) -> None:
    when = pyarrow.array([10**18], "timestamp[us]")
    feather.write_feather(pyarrow.table({"text": TEXTS[:1], "when": when}), tmp_path / "a.arrow")
    assert texts(tmp_path) == TEXTS[:1]
    with pytest.raises(InvalidArgument, match="when or text holds a time that is not in the years 1 to 9999"):
        texts(tmp_path, metadata=("when",))


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_an_object_that_is_null_has_null_fields(tmp_path: Path, name: str) -> None:
    """Regression: it ended the build, though a null text is left out."""
    rows = [{"a": None}, {"a": {"b": TEXTS[0]}}, {"a": {"b": None}}, {"a": {"b": TEXTS[1]}}]
    if name.endswith("parquet"):
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / name)
    else:
        write_rows(tmp_path / name, rows)
    chosen = options(tmp_path, text_field="a.b")
    [found] = [parse_documents(block.payload, chosen) for block in blocks(tmp_path, text_field="a.b")]
    assert found.texts == TEXTS[:2]
    assert [each.reason for each in found.left_out] == ["field 'a.b' is null or NaN"] * 2


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.jsonl"])
@pytest.mark.parametrize(
    "row", [{"x": {"a.b": TEXTS[0]}}, {"x.a": {"b": TEXTS[0]}}, {"x": {"y": "1"}, "x.a.b": TEXTS[0]}]
)
def test_names_in_objects_may_have_dots(tmp_path: Path, name: str, row: dict[str, object]) -> None:
    """As in OpenTelemetry's attributes. Regression: there was no such field."""
    if name.endswith("jsonl"):
        write_rows(tmp_path / name, [row])
    else:
        write = parquet.write_table if name.endswith("parquet") else feather.write_feather
        write(pyarrow.Table.from_pylist([row]), tmp_path / name)
    chosen = options(tmp_path, text_field="x.a.b", metadata=("x.a.b",))
    [found] = [
        parse_documents(block.payload, chosen) for block in blocks(tmp_path, text_field="x.a.b", metadata=("x.a.b",))
    ]
    assert found.texts == TEXTS[:1]
    assert [metadata for _, metadata in found.origins] == [{"x.a.b": TEXTS[0]}]


def test_an_object_without_the_field_ends_the_build(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", [{"a": {"b": "one"}}, {"a": {}}])
    with pytest.raises(InvalidArgument, match="a.jsonl:2: no field 'a.b'"):
        texts(tmp_path, text_field="a.b")


def test_bytes_are_texts_if_they_hold_one(tmp_path: Path) -> None:
    """As Impala and older Spark write texts. Regression: ids were b'...', and metadata was refused."""
    columns = {"text": TEXTS, "id": ["\u00e9", *"bcde"], "url": [f"http://{at}" for at in range(5)]}
    table = {name: pyarrow.array([value.encode() for value in values]) for name, values in columns.items()}
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    fields = {"id_field": "id", "metadata": ("url",)}
    chosen = options(tmp_path, **fields)
    [found] = [parse_documents(block.payload, chosen) for block in blocks(tmp_path, **fields)]
    assert [source.rpartition("#")[2] for source, _ in found.origins] == columns["id"]
    assert [metadata["url"] for _, metadata in found.origins] == columns["url"]
    assert found.texts == TEXTS


@pytest.mark.parametrize("value", [b"\x00\x01", b"\xff"])
def test_bytes_that_hold_no_text_are_refused(tmp_path: Path, value: bytes) -> None:
    parquet.write_table(pyarrow.table({"text": TEXTS[:1], "key": [value]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidArgument, match="metadata field 'key' holds bytes"):
        texts(tmp_path, metadata=("key",))
    with pytest.raises(InvalidArgument, match="field 'key' holds bytes, not a text or a number"):
        texts(tmp_path, id_field="key")


@pytest.mark.parametrize(("value", "name"), [(7.0, "7"), (7.5, "7.5"), (7, "7"), ("7.0", "7.0")])
def test_a_whole_float_is_the_id_of_its_integer(tmp_path: Path, value: object, name: str) -> None:
    """A table with a null id holds integers as floats."""
    write_rows(tmp_path / "a.jsonl", [{"text": "one", "id": value}])
    chosen = options(tmp_path, id_field="id")
    [found] = [parse_documents(block.payload, chosen) for block in blocks(tmp_path, id_field="id")]
    assert [source.rpartition("#")[2] for source, _ in found.origins] == [name]


@pytest.mark.parametrize(("value", "kind"), [({"a": 1}, "an object"), ([1], "an array")])
def test_an_id_is_a_text_or_a_number(tmp_path: Path, value: object, kind: str) -> None:
    """Regression: it was written as Python writes it."""
    write_rows(tmp_path / "a.jsonl", [{"text": "one", "id": value}])
    with pytest.raises(InvalidArgument, match=f"field 'id' holds {kind}, not a text or a number"):
        texts(tmp_path, id_field="id")
