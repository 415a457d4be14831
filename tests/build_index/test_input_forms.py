"""The form of a file is found from its first bytes, and what is not read is named."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from suffolk.build_index.block import BLOCK_BYTES
from suffolk.build_index.builder import build
from suffolk.build_index.documents import parse_documents
from suffolk.build_index.inputs import find_inputs
from suffolk.build_index.options import BuildOptions
from suffolk.cli.main import main
from suffolk.datastore.errors import InvalidArgument
from tests.support.build_blocks import blocks, options
from tests.support.building import read_documents, write_tokenizer

RECORDS: list[dict[str, Any]] = [{"id": number, "text": f'text "{number}" [é]\n'} for number in range(5)]
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS).encode()
PRETTY = json.dumps(RECORDS, indent=2, ensure_ascii=False).encode()
SERIES = "\n".join(json.dumps(record, indent=2) for record in RECORDS).encode()
BOM = b"\xef\xbb\xbf"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "zstandard": zstandard.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


def texts(path: Path, **more: Any) -> tuple[list[str], list[str]]:
    """The texts of a corpus, and their sources without the folder."""
    chosen = options(path, **more)
    found = [parse_documents(block.payload, chosen) for block in blocks(path, **more)]
    sources = [source.rpartition("/")[2] for each in found for source, _ in each.origins]
    return [text for each in found for text in each.texts], sources


@pytest.mark.parametrize("name", ["a", "a.jsonl"])
def test_joined_files_may_have_several_marks(tmp_path: Path, name: str) -> None:
    """As ``cat`` writes them from files with a byte order mark."""
    first, second = b'{"text": "one"}\n', b'{"text": "two"}\n{"text": "three"}\n'
    (tmp_path / name).write_bytes(BOM + first + BOM + second)
    assert texts(tmp_path / name)[0] == ["one", "two", "three"]


def test_nan_is_null(tmp_path: Path) -> None:
    """As ``json.dumps`` writes missing texts of a data frame."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "one", "score": NaN}\n{"text": NaN, "score": 1}\n{"text": "two", "score": -Infinity}\n')
    chosen = options(path, metadata=("score",))
    [found] = [parse_documents(block.payload, chosen) for block in blocks(path)]
    assert found.texts == ["one", "two"]
    assert [each.reason for each in found.left_out] == ["field 'text' is null or NaN"]


def test_records_of_nan_alone_are_named(tmp_path: Path) -> None:
    """Regression: NaN was a float while the form of a file was found, and a NoneType as a record."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": NaN}\n')
    [found] = [parse_documents(block.payload, options(path)) for block in blocks(path)]
    assert [str(each.place) for each in found.left_out] == [f"{path}:1"]
    path.write_text("NaN\n")
    with pytest.raises(InvalidArgument, match="a.jsonl:1: null or NaN, not an object; every record is one JSON object"):
        texts(path)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(
    "name", ["a", "a.json", "a.ndjson", "a.jsonlines", "a.jsonl", "a.txt", "c4-train.00000.json.gz"]
)
@pytest.mark.parametrize(
    "content", [LINES, BOM + LINES, PRETTY, BOM + PRETTY, json.dumps(RECORDS).encode(), BOM + SERIES]
)
def test_records_are_found_under_any_name(tmp_path: Path, content: bytes, name: str, packing: str) -> None:
    (tmp_path / name).write_bytes(PACKINGS[packing](content))
    for path in (tmp_path, tmp_path / name):
        assert texts(path) == (
            [record["text"] for record in RECORDS],
            [f"{name}:{number}" for number in range(1, 6)],
        )
        assert texts(path, id_field="id")[1] == [f"{name}#{number}" for number in range(5)]


def pzstd(data: bytes) -> bytes:
    """As ``pzstd`` packs: before each frame one with the frame's size, which readers of zstd skip."""
    frames = [zstandard.compress(part) for part in (data[:5000], data[5000:])]
    return b"".join(b"\x50\x2a\x4d\x18\x04\0\0\0" + len(frame).to_bytes(4, "little") + frame for frame in frames)


@pytest.mark.parametrize("pack", [*[*PACKINGS.values()][1:], pzstd])
def test_compressed_text_is_text(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    content = "zeile äöü\n" * 90_000
    (tmp_path / "notes.txt.packed").write_bytes(pack(content.encode()))
    found, sources = texts(tmp_path)
    assert "".join(found) == content
    assert sources[0] == "notes.txt.packed@0"


@pytest.mark.parametrize("content", ["one\ntwo", "one two.", "äö", "one\n", "line\n" * 300_000 + "end"])
def test_the_last_line_of_a_compressed_text_is_no_document_of_its_own(tmp_path: Path, content: str) -> None:
    """Regression: the line after the last line end, or the last character of a text without line ends, was one."""
    (tmp_path / "notes.txt.gz").write_bytes(gzip.compress(content.encode()))
    found, _ = texts(tmp_path)
    assert "".join(found) == content
    assert len(found) == -(-len(content) // BLOCK_BYTES)


def test_binary_forms_are_found_by_their_first_bytes(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"text": ["one", "two"]}), tmp_path / "blob")
    assert texts(tmp_path / "blob") == (["one", "two"], ["blob:1", "blob:2"])
    (tmp_path / "ids").write_bytes((np.save(stream := io.BytesIO(), np.arange(5)), stream.getvalue())[1])
    (block,) = blocks(tmp_path / "ids", tokenizer=None)
    assert block.payload.ids.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "content",
    [
        b'{\n  "name": "package",\n  "text": "of a file of settings"\n}\n',
        b'{"name": "minified", "version": 3}',
        b"[[1, 2], [3, 4]]",
        b'["a", "b"]',
        b"[section]\nkey = 1\n",
        b"[link](page.md) and more\n",
        b"{% if x %}\n{% endif %}\n",
        b'{"text": "one line of JSON, then other text"}\nend\n',
    ],
)
def test_other_text_that_begins_like_json_stays_text(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    assert texts(tmp_path) == ([content.decode()], ["a.json"])


@pytest.mark.parametrize(
    ("content", "form"),
    [
        ({"data": RECORDS}, "object with records in field 'data' (jq -c '.[\"data\"][]'"),
        (
            {"version": {"a": [1]}, 'rows of "x': 1, "data": RECORDS * 3000},
            "object with records in field 'data' (jq -c '.[\"data\"][]'",
        ),
        ({"schema": [{"a": 1}], "data": RECORDS}, "object with records in field 'data' (jq -c '.[\"data\"][]'"),
        ({"a": {"data": RECORDS}}, "object with records in field 'a.data' (jq -c '.[\"a\"][\"data\"][]'"),
        ([{"id": 1, "data": RECORDS}], "array of an object with records in field 'data' (jq -c '.[][\"data\"][]'"),
    ],
)
def test_records_inside_an_object_are_not_read_as_one_text(tmp_path: Path, content: Any, form: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps(content, indent=1))  # the longer one has more than is looked at
    (tmp_path / "b.txt").write_text("a text")
    chosen = options(tmp_path)
    found = find_inputs(chosen)
    assert found.skipped == {f"JSON {form} writes them as lines)": 1}
    with pytest.raises(InvalidArgument, match="records in field '(a.)?data'"):
        find_inputs(options(tmp_path / "a.json"))


def test_two_objects_need_no_line_end_behind_them(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("\n".join(json.dumps(record, indent=2) for record in RECORDS[:2]))
    assert texts(tmp_path)[0] == [record["text"] for record in RECORDS[:2]]


def test_a_long_array_comes_in_blocks_of_bounded_size(tmp_path: Path) -> None:
    """Elements are cut by chunks of the file, and one element is longer than several of them."""
    rows = [{"text": "é x" * (9 * number)} for number in range(900)]
    rows[500]["text"] = "y" * 5_000_000
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False))
    found = blocks(tmp_path / "a.json")
    assert len(found) > 5
    assert b"\n".join(block.payload.data for block in found).count(b"\n") == 899
    joined = [json.loads(line) for block in found for line in block.payload.data.split(b"\n")]
    assert joined == rows
    lines = 1
    for block in found:
        assert block.payload.first_line == lines
        lines += block.payload.data.count(b"\n") + 1


@pytest.mark.parametrize(
    "damage", [PRETTY[:-30], PRETTY[:-2], PRETTY.replace(b'"id": 3', b'"id" 3'), PRETTY + b"]", SERIES[:-3]]
)
def test_a_damaged_array_is_named_or_left_out(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "a.json").write_bytes(damage)
    with pytest.raises(
        InvalidArgument, match=r"a\.json:[4-6]: not a JSON value .*; every record is one JSON object; or"
    ):
        texts(tmp_path)
    found, _ = texts(tmp_path, on_error="skip")
    assert len(found) >= 4
    assert found == [record["text"] for record in RECORDS if record["text"] in found]


def test_an_array_that_lacks_its_end_loses_no_record(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(RECORDS)[:-1])
    assert texts(tmp_path, on_error="skip")[0] == [record["text"] for record in RECORDS]


def test_fields_named_like_a_conversation_may_hold_something_else(tmp_path: Path) -> None:
    """As files of translations do."""
    (tmp_path / "en.json").write_text('{"messages": {"greeting": "Hello"}}')
    assert texts(tmp_path) == (['{"messages": {"greeting": "Hello"}}'], ["en.json"])


def write_unread(folder: Path) -> None:
    """A file of each form that is not read, and a text."""
    folder.mkdir()
    (folder / "a.txt").write_text("a text")
    (folder / "b.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (folder / "c.parquet").write_bytes(LFS)
    (folder / "d.txt").write_text("UTF-16 of Windows", encoding="utf-16")
    zipfile.ZipFile(folder / "e.zip", "w").writestr("x", "x")
    with tarfile.open(folder / "f.tar.gz", "w:gz") as archive:
        archive.add(folder / "a.txt", "a.txt")
    (folder / "h.txt").touch()
    (folder / "i.npy.gz").write_bytes(gzip.compress(b"\x93NUMPY"))
    (folder / "j").symlink_to(folder / "nowhere")
    (folder / "k").symlink_to(folder)
    (folder / "l.pdf").write_bytes(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n")
    (folder / "m.txt").write_text("Привет, мир. " * 9, encoding="cp1251")
    (folder / "n.txt").write_text("UTF-32", encoding="utf-32")
    (folder / "p.txt").write_text("日本語のテキスト。" * 9, encoding="utf-16-le")
    (folder / "q.jsonl").write_text('{"text": "こんにちは、世界"}\n' * 9, encoding="shift-jis")


REASONS = {
    "b.png": "binary",
    "c.parquet": "Git LFS pointer ('git lfs pull' fetches it)",
    "d.txt": "UTF-16 text (convert it to UTF-8)",
    "e.zip": "zip archive (unpack it)",
    "f.tar.gz": "tar archive (unpack it)",
    "i.npy.gz": "compressed npy file (unpack it)",
    "j": "not a regular file",
    "k": "linked folder (name it)",
    "l.pdf": "PDF (convert it to text)",
    "m.txt": "bytes that are not UTF-8 (convert text to UTF-8)",
    "n.txt": "UTF-32 text (convert it to UTF-8)",
    "p.txt": "bytes that are not UTF-8 (convert text to UTF-8)",
    "q.jsonl": "bytes that are not UTF-8 (convert text to UTF-8)",
}


def test_a_text_with_some_invalid_utf8_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Les élèves ont été à la fête dès le début. " * 9, encoding="latin-1")
    (tmp_path / "b.txt").write_text("\ufffd" * 99)
    (tmp_path / "c.txt").write_bytes(b"\xff\xfc\xff")
    assert len(texts(tmp_path)[0]) == 3


def test_what_is_not_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_unread(tmp_path / "in")
    inputs = find_inputs(options(tmp_path / "in"))
    assert [Path(file.path).name for file in inputs.files] == ["a.txt"]
    assert {Path(each.place).name: each.reason for each in inputs.unread} == REASONS
    assert inputs.passed_over["empty"] == 1
    for name in ("b.png", "c.parquet", "d.txt", "e.zip", "f.tar.gz", "i.npy.gz"):
        with pytest.raises(InvalidArgument) as refusal:
            find_inputs(options(tmp_path / "in" / name))
        assert f"{name}: {REASONS[name]}, which is not read; name text, JSON lines" in str(refusal.value)

    words = [
        "build",
        "--tokenizer",
        write_tokenizer(tmp_path),
        "--output",
        str(tmp_path / "store"),
        str(tmp_path / "in"),
    ]
    assert main([*words, "--strict"]) == 2
    assert f"1 binary: {tmp_path}/in/b.png; " in capsys.readouterr().err
    assert main([*words, "--plan"]) == 0
    assert f"1 zip archive (unpack it): {tmp_path}/in/e.zip" in capsys.readouterr().out
    assert main([*words, "--skipped", str(tmp_path / "skipped.jsonl")]) == 0
    assert f"1 linked folder (name it): {tmp_path}/in/k; " in capsys.readouterr().out
    listed = [json.loads(line) for line in (tmp_path / "skipped.jsonl").read_text().splitlines()]
    assert {Path(each["place"]).name: each["reason"] for each in listed} == REASONS


def test_records_without_a_text_are_never_most_of_a_datastore(tmp_path: Path) -> None:
    other = "".join(json.dumps({"content": f"text {number}"}) + "\n" for number in range(50))
    (tmp_path / "README.md").write_text("A data set.")
    for name, content in (
        ("a.jsonl", other.encode()),
        ("b.json.gz", gzip.compress(other.encode())),
        ("c.json", other.encode()),
    ):
        (tmp_path / name).write_bytes(content)
        for place in (tmp_path, tmp_path / name):
            with pytest.raises(InvalidArgument, match=rf"{name}:1: no field 'text'; the record has content; name the"):
                find_inputs(options(place))
            assert len(texts(place, text_field="content")[0]) >= 50
        (tmp_path / name).unlink()
    (tmp_path / "code.py").write_text("pass\n" * 10_000)
    (tmp_path / "fixture.jsonl").write_text(other)
    (tmp_path / "settings.json").write_text(f"[{','.join(other.splitlines())}]")
    inputs = find_inputs(options(tmp_path))
    assert [Path(file.path).name for file in inputs.files] == ["README.md", "code.py", "settings.json"]
    assert [Path(path).name for path in inputs.textless] == ["fixture.jsonl", "settings.json"]


@pytest.mark.parametrize(
    "option", [{"text_field": "body"}, {"id_field": "id"}, {"metadata": ("a", "b")}, {"on_error": "skip"}]
)
def test_options_without_effect_are_refused(tmp_path: Path, option: dict[str, Any]) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(
        InvalidArgument, match=f"{next(iter(option)).replace('_', ' ')}: .* has no effect: no corpus is a"
    ):
        find_inputs(options(tmp_path, **option))


def test_parquet_takes_the_names_that_json_lines_take(tmp_path: Path) -> None:
    rows = [{"doc": {"text": f"text {number}", "id": {"n": number}}, "meta": {"lang": "de"}} for number in range(4)]
    rows[2]["doc"] = {"text": None, "id": {"n": 2}}
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    found = {}
    for name in ("a.jsonl", "a.parquet"):
        made = BuildOptions(
            (str(tmp_path / name),), tmp_path / f"store-{name}", write_tokenizer(tmp_path), text_field="doc.text",
            id_field="doc.id.n", metadata=("meta.lang", "region"),
        )  # fmt: skip
        report = build(made)
        assert (report.documents, report.described, report.left_out) == (3, {"meta.lang": 3, "region": 0}, 1)
        found[name] = [(str(source).rpartition("#")[2], ids) for source, ids in read_documents(made.output)]
    assert found["a.parquet"] == found["a.jsonl"]
    assert [source for source, _ in found["a.jsonl"]] == ["0", "1", "3"]
    with pytest.raises(InvalidArgument, match=r"no column 'doc\.body' .* it has doc, doc\.id, doc\.id\.n, doc\.text"):
        blocks(tmp_path / "a.parquet", text_field="doc.body")
