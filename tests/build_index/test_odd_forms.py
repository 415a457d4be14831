"""Tests files of texts and records in forms that other tools write by default."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from suffolk.build_index.input_file import read_chunks
from suffolk.build_index.inputs import find_inputs
from suffolk.build_index.read_lines import array_elements
from suffolk.cli.main import main
from suffolk.cli.serve import parse_stores
from suffolk.datastore.errors import Corruption, InvalidArgument, PermissionDenied
from tests.build_index.test_input_forms import texts
from tests.support.build_blocks import options
from tests.support.building import write_tokenizer


def test_strings_are_texts(tmp_path: Path) -> None:
    """Of an array only if they are long: shorter ones are names in a file of settings."""
    found = [f"A text of forty characters or more, {number}, with \\n and é.\n" for number in range(30)]
    (tmp_path / "a.json").write_text(json.dumps(found, indent=1))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(text) + "\n" for text in ("x", *found)))
    assert texts(tmp_path) == (
        [*found, "x", *found],
        [f"a.json:{number}" for number in range(1, 31)] + [f"b.jsonl:{number}" for number in range(1, 32)],
    )
    (tmp_path / "c.json").write_text(json.dumps(["a", "b"]))
    assert texts(tmp_path / "c.json") == (['["a", "b"]'], ["c.json"])
    assert texts(tmp_path / "c.json", records="text") == (["a", "b"], ["c.json:1", "c.json:2"])
    with pytest.raises(InvalidArgument, match=r"b.jsonl:1: a text, not an object"):
        texts(tmp_path / "b.jsonl", records="chat")


@pytest.mark.parametrize("damaged", ['{"text": "b"', '{"text": "b"} x', '{"text": '])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a"])
def test_a_damaged_second_record_is_the_only_one_left_out(tmp_path: Path, damaged: str, name: str) -> None:
    lines = ['{"text": "a"}', damaged, *('{"text": "c"}' for _ in range(3))]
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    with pytest.raises(InvalidArgument, match=f"{name}:2: not a JSON value"):
        texts(tmp_path)
    assert texts(tmp_path, on_error="skip")[0] == ["a", "c", "c", "c"]


DAMAGE = {
    "a quote": '"text": 5 "x"',
    "a brace": '"text": "x"',
    "a line end": '"text": "x\n y"',
    "its end": '"text": "x',
}


@pytest.mark.parametrize("lacks", DAMAGE)
@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("form", ["[{}]", "[\n{}\n]\n", "{}\n"])
def test_a_damaged_record_of_several_lines_is_the_only_one_left_out(
    tmp_path: Path, form: str, at: int, lacks: str
) -> None:
    """Regression: all after it were left out too, and with a damaged first one the file was a text."""
    found = [f"A text of forty characters or more, number {number}." for number in range(4)]
    records = [json.dumps({"meta": [{"a": 1}], "text": text}, indent=1) for text in found]
    records[at] = f'{{\n "meta": [\n  {{\n   "a": 1\n  }}\n ],\n {DAMAGE[lacks]}\n{"" if lacks == "a brace" else "}"}'
    body = ("\n" if form == "{}\n" else ",\n").join(records)
    if form == "[\n{}\n]\n":
        body = "\n".join("  " + line for line in body.split("\n"))
    (tmp_path / "a.json").write_text(form.replace("{}", body))
    with pytest.raises(InvalidArgument, match=rf"a.json:{at + 1}: not a JSON value"):
        texts(tmp_path)
    if form != "[{}]" or at:  # the brace of the first is behind the bracket, so the others are at another indentation
        assert texts(tmp_path, on_error="skip")[0] == found[:at] + found[at + 1 :]


@pytest.mark.parametrize("indent", [0, 1, 2])
def test_a_whole_record_that_is_cut_off_is_not_taken_for_a_damaged_one(indent: int) -> None:
    """As between two reads of a file."""
    rows = [
        {"text": f'é \\ " {number}', "n": [{"a": -1.5e3, "b": [{}, {"c": None}]}], "ok": True} for number in range(3)
    ]
    text = json.dumps(rows, indent=indent)[1:]
    for end in range(len(text)):
        assert all(row in rows for begin, stop, row in array_elements(text[:end]) if stop > begin)


@pytest.mark.parametrize(
    ("outer", "inner"), [(gzip.compress, gzip.compress), (bz2.compress, gzip.compress), (lzma.compress, bz2.compress)]
)
def test_files_that_are_compressed_twice_are_read(
    tmp_path: Path, outer: Callable[[bytes], bytes], inner: Callable[[bytes], bytes]
) -> None:
    """As a download or a pipeline does to files that are compressed already."""
    found = [f"text {number} é" for number in range(40_000)]
    data = "".join(json.dumps({"text": text}) + "\n" for text in found).encode()
    (tmp_path / "a.jsonl.gz.gz").write_bytes(outer(inner(data)))
    assert texts(tmp_path)[0] == found
    (tmp_path / "a.jsonl.gz.gz").write_bytes(outer(inner(data)[:-30]))
    with pytest.raises(Corruption, match="broken .* stream"):
        texts(tmp_path)


def test_utf16_without_a_mark_is_named(tmp_path: Path) -> None:
    for number, form in enumerate(("utf-16-le", "utf-16-be")):
        (tmp_path / f"{number}.txt").write_bytes("Text of a tool on Windows, with an é.\r\n".encode(form))
    (tmp_path / "2.o").write_bytes(bytes(range(8)) * 40)
    (tmp_path / "3.txt").write_text("a text")
    reasons = [each.reason for each in find_inputs(options(tmp_path)).unread]
    assert reasons == ["UTF-16 text (convert it to UTF-8)"] * 2 + ["binary"]


def test_partitions_of_spark_and_hive_are_read(tmp_path: Path) -> None:
    for language in ("de", "en", "__HIVE_DEFAULT_PARTITION__"):
        folder = tmp_path / f"lang={language}/year=2024"
        folder.mkdir(parents=True)
        parquet.write_table(pyarrow.table({"text": [f"in {language}"]}), folder / "part-00000-9f.c000.snappy.parquet")
        (folder / "_SUCCESS").touch()
    for corpus in (tmp_path, tmp_path / "*/*/*.parquet", f"file://{tmp_path}", f"file://{tmp_path}/lang=*/*/*.parquet"):
        assert sorted(texts(corpus)[0]) == ["in __HIVE_DEFAULT_PARTITION__", "in de", "in en"]  # type: ignore[arg-type]
    assert texts(tmp_path / "lang=en")[0] == ["in en"]
    assert parse_stores([f"en={tmp_path}/lang=en", f"{tmp_path}/lang=en/year2024"]) == {
        "en": f"{tmp_path}/lang=en",
        "year2024": f"{tmp_path}/lang=en/year2024",
    }


def test_a_note_says_that_a_table_of_csv_is_one_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(b"id,text\n1,hello\n2,world\n"))
    words = ["--tokenizer", str(write_tokenizer(tmp_path)), "--output", str(tmp_path / "store"), "--text-field", "text"]
    assert main(["build", *words, str(tmp_path / "rows.csv.gz")]) == 0
    said = capsys.readouterr()
    assert "1 table of CSV as one text each, with all columns; the first is " in said.out + said.err


def test_what_follows_a_bzip2_stream_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = b"".join(b'{"text": "%d"}\n' % number for number in range(200_000))
    parts = [data[start : start + 900_000] for start in range(0, len(data), 900_000)]
    (tmp_path / "a.jsonl.bz2").write_bytes(b"".join(map(bz2.compress, parts)) + bytes(1000))
    assert texts(tmp_path)[0] == list(map(str, range(200_000)))
    assert not caplog.text
    (tmp_path / "a.jsonl.bz2").write_bytes(bz2.compress(data) + b"something else" * 10)
    assert len(texts(tmp_path)[0]) == 200_000
    assert "what follows the end of the bzip2 stream is left out" in caplog.text


def test_zeros_in_bzip2_are_unpacked_in_parts(tmp_path: Path) -> None:
    (tmp_path / "a.txt.bz2").write_bytes(bz2.compress(b"a\n" + b"b" * (64 << 20)))
    file = find_inputs(options(tmp_path)).files[0]
    assert max(len(chunk) for chunk, _ in read_chunks(file)) <= 2 << 20


def test_a_pattern_names_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a text")
    (tmp_path / "b.txt").symlink_to("nowhere")
    assert [each.place for each in find_inputs(options(tmp_path / "*.txt")).unread] == [str(tmp_path / "b.txt")]


def test_streams_of_compress_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt.Z").write_bytes(b"\x1f\x9d\x90a text")
    with pytest.raises(InvalidArgument, match="compress stream"):
        texts(tmp_path / "a.txt.Z")


def test_a_file_in_storage_may_be_read_without_the_right_to_list(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("AccessDenied")

    MemoryFileSystem().pipe("/bucket/folder/a.jsonl", b'{"text": "a"}\n')
    monkeypatch.setattr(MemoryFileSystem, "find", refuse)
    assert texts("memory://bucket/folder/a.jsonl")[0] == ["a"]  # type: ignore[arg-type]
    with pytest.raises(PermissionDenied, match="access denied"):
        texts("memory://bucket/folder")  # type: ignore[arg-type]
