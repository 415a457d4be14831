"""The parts of a build, each alone: inputs, readers, documents, encoder, proof."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import zstandard
from kitoken import Kitoken
from pyarrow import parquet
from tokenizers import Tokenizer, models, pre_tokenizers

from build_index.block import BLOCK_BYTES, BLOCK_TOKENS, Lines, Texts, TokenRun
from build_index.documents import MAX_TEXT_CHARACTERS, parse_documents
from build_index.encode_block import BlockEncoder, EncodeSetup
from build_index.encoder import Encoder, added_pattern
from build_index.inputs import find_inputs, recognise
from build_index.options import BuildOptions
from build_index.proof import Sample, load_fast, prove
from build_index.reader import read_blocks
from build_index.target import find_target
from build_index.workspace import Workspace
from datastore.errors import Corruption, InvalidArgument, NotFound, ResourceExhausted, Unsupported
from datastore.manifest import Manifest
from datastore.segment import SegmentEntry
from tests.building import SPECIALS, make_texts, tokenize, tokenizer_json


def options(*corpora: Path | str, **more: Any) -> BuildOptions:
    return BuildOptions(corpora=tuple(map(str, corpora)), output=Path("/nowhere"), **{"tokenizer": "some", **more})


def blocks(*corpora: Path | str, **more: Any) -> list[Any]:
    chosen = options(*corpora, **more)
    return list(read_blocks(find_inputs(chosen), chosen, "u16", Counter()))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.JSONL", "lines"), ("a.jsonl.gz", "lines-gz"), ("a.jsonl.zst", "lines-zst"), ("x.parquet", "parquet"),
     ("x.npy", "npy"), ("x.bin", "bin"), ("x.py", "text"), ("README", "text"), ("x.json", "text")],
)  # fmt: skip
def test_files_are_recognised_by_name(name: str, kind: str) -> None:
    assert recognise(name) == kind


def test_folders_are_walked_in_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.py", "a/z.py", "a/.git/config", ".env", "c.md", "a/data.npy"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    inputs = find_inputs(options(tmp_path, tmp_path / "b.py", extensions=("py", ".npy")))
    assert [Path(file.path).name for file in inputs.files] == ["b.py", "z.py"]
    assert inputs.skipped["hidden"] == 2
    assert inputs.skipped["other extension"] == 1
    assert inputs.skipped["given twice"] == 1
    assert sum(count for reason, count in inputs.skipped.items() if "token arrays" in reason) == 1


def test_linked_folders_are_counted_and_read_where_they_are_named(tmp_path: Path) -> None:
    """They were left out without a word."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "corpus/a.txt").write_text("a")
    (tmp_path / "elsewhere/b.txt").write_text("b")
    (tmp_path / "corpus/linked").symlink_to(tmp_path / "elsewhere")
    inputs = find_inputs(options(tmp_path / "corpus"))
    assert [Path(file.path).name for file in inputs.files] == ["a.txt"]
    assert inputs.skipped["linked folder (name it)"] == 1
    named = find_inputs(options(tmp_path / "corpus", tmp_path / "corpus/linked"))
    assert [Path(file.path).name for file in named.files] == ["a.txt", "b.txt"]


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was left out without a word."""
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "locked").mkdir()
    scan = os.scandir

    def refuse(path: str) -> Any:  # who runs as root may read everything
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(
        InvalidArgument, match=r"locked: cannot be read \(Permission denied\); check the file and its perm"
    ):
        find_inputs(options(tmp_path))


def test_patterns_and_missing_inputs(tmp_path: Path) -> None:
    for name in ("1.txt", "2.txt"):
        (tmp_path / name).write_text(name)
    assert len(find_inputs(options(f"{tmp_path}/*.txt")).files) == 2
    with pytest.raises(NotFound, match=r"\*\.md: the pattern matches no file; check it"):
        find_inputs(options(f"{tmp_path}/*.md"))
    with pytest.raises(NotFound, match="gone.txt: no such file or folder; check the name"):
        find_inputs(options(tmp_path / "gone.txt"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgument, match=r"nothing to read \(no files at all\)"):
        find_inputs(options(tmp_path / "empty"))


def test_small_files_share_a_block_and_binary_ones_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a = 1\n")
    (tmp_path / "b.so").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "c.txt").write_bytes(b"")
    (tmp_path / "d.py").write_text("d = 4\n")
    (block,) = blocks(tmp_path)
    assert [text for _, text in block.payload.documents] == [b"a = 1\n", b"d = 4\n"]
    assert block.skipped == {"binary": 1, "empty": 1}
    with pytest.raises(InvalidArgument, match=r"b.so: a binary file \(NUL byte in its first 1024 bytes\); name text"):
        blocks(tmp_path / "b.so")


def test_large_text_is_cut_at_line_ends_and_never_inside_a_character(tmp_path: Path) -> None:
    for name, text in (("lines.txt", "zeile äöü\n" * 300_000), ("one.txt", "日" * 900_000)):
        (tmp_path / name).write_text(text)
        pieces = [raw for block in blocks(tmp_path / name) for _, raw in block.payload.documents]
        assert len(pieces) > 1
        assert b"".join(pieces) == text.encode()
        assert "".join(piece.decode() for piece in pieces) == text
        assert max(map(len, pieces)) <= 2 * BLOCK_BYTES


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_json_lines_come_in_whole_lines(tmp_path: Path, ending: str) -> None:
    data = b"".join(json.dumps({"text": "x" * (number % 9000)}).encode() + b"\n" for number in range(1600)).rstrip(
        b"\n"
    )
    frames = zstandard.compress(data[:5000]) + zstandard.compress(data[5000:])  # a stream may have several frames
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes({"": data, ".gz": gzip.compress(data), ".zst": frames}[ending])
    found = blocks(path)
    assert len(found) >= 2
    assert b"".join(block.payload.data for block in found) == data
    lines = 1
    for block in found:
        assert block.payload.first_line == lines
        lines += block.payload.data.count(b"\n")
    assert found[-1].bytes_read == path.stat().st_size


@pytest.mark.parametrize(("ending", "compress"), [(".gz", gzip.compress), (".zst", zstandard.compress)])
def test_broken_streams_are_named(tmp_path: Path, ending: str, compress: Any) -> None:
    data = compress(b'{"text": "hello"}\n' * 1000)
    path = tmp_path / f"a.jsonl{ending}"
    for broken in (data[:-9], b"this is no such stream"):
        path.write_bytes(broken)
        with pytest.raises(Corruption, match=rf"a\.jsonl\{ending}: broken .* stream .*; fetch the file again"):
            blocks(path)


def test_a_small_stream_of_much_text_comes_in_blocks_of_bounded_size(tmp_path: Path) -> None:
    """Two kilobytes of zstandard held 64 MiB, and gave them in one block."""
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstandard.compress(b"\n" * (64 << 20)))
    sizes = [len(block.payload.data) for block in blocks(path)]
    assert sum(sizes) == 64 << 20
    assert max(sizes) <= BLOCK_BYTES + (16 << 20)


def test_long_rows_come_in_blocks_of_bounded_size(tmp_path: Path) -> None:
    """A batch of 256 long rows would be a block of a hundred megabytes, of which many are in memory at a time."""
    texts = [f"{number} " * (50_000 if number % 3 else 1) for number in range(300)]
    ids = [list(range(number * 1000)) for number in range(40)]
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet")
    parquet.write_table(pyarrow.table({"input_ids": ids}), tmp_path / "b.parquet")
    found = blocks(tmp_path / "a.parquet")
    sizes = [sum(len(text) for _, text in block.payload.documents) for block in found]
    named = [document for block in found for document in block.payload.documents]
    assert max(sizes) <= BLOCK_BYTES
    assert named == [(f"{tmp_path}/a.parquet:{row}", text.encode()) for row, text in enumerate(texts, 1)]
    assert found[-1].bytes_read == (tmp_path / "a.parquet").stat().st_size
    runs = [block.payload for block in blocks(tmp_path / "b.parquet", tokenizer=None)]
    assert max(run.ids.nbytes for run in runs) <= BLOCK_BYTES
    assert np.array_equal(np.concatenate([run.ids for run in runs]), np.concatenate(ids))
    assert [source for run in runs for source in run.sources] == [f"{tmp_path}/b.parquet:{row}" for row in range(1, 41)]


def test_fields_of_records_are_kept_as_metadata(tmp_path: Path) -> None:
    record = {"text": "one", "license": "mit", "repo": {"name": "a/b", "stars": 3}, "repo.fork": False, "none": None}
    fields = ("license", "repo.name", "repo.stars", "repo.fork", "none", "missing", "repo.name.deeper")
    kept = {"license": "mit", "repo.name": "a/b", "repo.stars": 3, "repo.fork": False}
    lines = Lines("s.jsonl", 1, json.dumps(record).encode() + b'\n{"text": "two"}\n')
    assert parse_documents(lines, options("s", metadata=fields)).metadata == [kept, {}]
    assert parse_documents(lines, options("s")).metadata == [{}, {}]
    for column, values in (("text", ["one", "two"]), ("input_ids", [[1, 2], [3]])):
        rows = {"repo": [record["repo"], None], "license": ["mit", None], "repo.fork": [False, None], column: values}
        parquet.write_table(pyarrow.table(rows), tmp_path / "a.parquet")
        (block,) = blocks(tmp_path / "a.parquet", tokenizer="some", metadata=fields)
        assert list(block.payload.metadata) == [kept, {}]
    encoder = BlockEncoder(EncodeSetup(options("a", end_of_document=0), None, False, 500))
    encoded = encoder.encode(TokenRun("p", 0, np.array([1, 2, 0, 3, 4]), (0, 3), ("p#a", "p#b"), (kept, {})))
    assert encoded.metadata == [kept, {}]


def test_fields_ids_and_line_numbers() -> None:
    data = b'\n{"meta": {"path": "p/q.py"}, "text": "one"}\n{"text.x": "two", "meta": {"path": 7}}\n'
    lines = Lines("s.jsonl", 5, data[: data.index(b'{"text.x')])
    assert parse_documents(lines, options("s")).sources == ["s.jsonl:6"]
    assert parse_documents(lines, options("s", id_field="meta.path")).sources == ["s.jsonl#p/q.py"]
    second = Lines("s.jsonl", 7, data[data.index(b'{"text.x') :])
    assert parse_documents(second, options("s", text_field="text.x")).texts == ["two"]
    with pytest.raises(
        InvalidArgument, match=r"s\.jsonl:7: no field 'text'; the line has meta, text\.x; name .* --text-field"
    ):
        parse_documents(second, options("s"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{broken", r"s:1: not a JSON value .*; every line of a \.jsonl file is one JSON object"),
        (b"[1, 2]", "s:1: a JSON list, not an object"),
        (b'{"text": 3}', "s:1: field 'text' holds int, not text; name the text field"),
        (b'{"text": null}', "s:1: field 'text' holds NoneType, not text"),
        (b"[" * 100_000, "s:1: not a JSON value that can be read: it is nested too deep; correct the line"),
        (
            b'{"text": "a", "n": ' + b"7" * 5000 + b"}",
            "^s:1: not a JSON value that can be read: it holds a number of too many digits; correct the line or leave it out$",
        ),
    ],
)
def test_wrong_lines_are_named(line: bytes, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        parse_documents(Lines("s", 1, line), options("s"))


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        (
            "a.txt",
            {"end_of_document": 2},
            r"^end of document: 2 does nothing, for no corpus is a \.npy or \.bin or \.parq",
        ),
        ("a.jsonl", {"end_of_document": 2}, "leave --end-of-document out, or name tokenized corpora$"),
        (
            "a.npy",
            {"token_format": "u16"},
            r"^token format: u16 does nothing, for no corpus is a \.bin file; leave --token-f",
        ),
    ],
)
def test_options_of_tokenized_corpora_are_refused_for_others(
    tmp_path: Path, name: str, option: dict[str, Any], message: str
) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(InvalidArgument, match=message):
        find_inputs(options(tmp_path, **option))
    (tmp_path / "b.bin").write_bytes(b"1234")
    assert len(find_inputs(options(tmp_path, **option)).files) == 2


def test_an_end_of_document_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer_json())
    chosen = BuildOptions(("a.npy",), tmp_path / "store", tokenizer=str(tmp_path), end_of_document=99_999)
    with pytest.raises(
        InvalidArgument, match="^end of document: 99999 is no id of the vocabulary of [0-9]+; give the id"
    ):
        find_target(chosen)


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
    assert found.sources == ["a", "a"]


def test_token_arrays_are_split_at_the_end_of_document(tmp_path: Path) -> None:
    ids = np.arange(2 * BLOCK_TOKENS, dtype=np.uint16) % 500
    ids[::1000] = 0
    ids[0:3] = 0
    np.save(tmp_path / "a.npy", ids)
    ids.astype("<u2").tofile(tmp_path / "a.bin")
    for name in ("a.npy", "a.bin"):
        found = blocks(tmp_path / name, end_of_document=0)
        assert np.array_equal(np.concatenate([block.payload.ids for block in found]), ids)
        assert all(block.payload.ids[-1] == 0 for block in found[:-1])
    encoder = BlockEncoder(EncodeSetup(options("a", end_of_document=0), None, False, 500))
    encoded = encoder.encode(TokenRun("a.npy", 100, np.array([0, 5, 6, 0, 0, 7], np.int64)))
    assert encoded.tokens.tolist() == [5, 6, 0xFFFF, 7, 0xFFFF]
    assert encoded.sources == ["a.npy@101", "a.npy@105"]
    rows = TokenRun("p", 0, np.array([1, 2, 0, 3, 4]), (0, 3, 3, 5), ("p#a", "p#b", "p#c", "p#d"))
    assert encoder.encode(rows).sources == ["p#a", "p#c"]


@pytest.mark.parametrize("value", [-1, 500, 70_000])
def test_ids_out_of_range_are_named(value: int) -> None:
    encoder = BlockEncoder(EncodeSetup(options("a"), None, False, 500))
    with pytest.raises(
        InvalidArgument, match=rf"corpus a.bin: id {value} at position 12 is not below 500.*--vocab-size"
    ):
        encoder.encode(TokenRun("a.bin", 10, np.array([1, 2, value], np.int64)))


def test_wrong_token_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "odd.bin").write_bytes(b"123")
    with pytest.raises(InvalidArgument, match="odd.bin: 3 bytes is no multiple of 2, the size of a u16 id"):
        blocks(tmp_path / "odd.bin")
    np.save(tmp_path / "f.npy", np.zeros(4))
    with pytest.raises(InvalidArgument, match="f.npy: an array of float64 with 1 dimensions; token ids are"):
        blocks(tmp_path / "f.npy")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "f.npy").read_bytes()[:-8])
    with pytest.raises(Corruption, match="cut.npy: not a whole .npy file"):
        blocks(tmp_path / "cut.npy")


@pytest.mark.parametrize("content", [b"PK\x03\x04 no archive", None])
def test_archives_are_no_token_files(tmp_path: Path, content: bytes | None) -> None:
    """numpy opens them all the same, and what came out was an error of Python's."""
    with (tmp_path / "a.npy").open("wb") as file:
        np.savez(file, np.arange(4)) if content is None else file.write(content)
    with pytest.raises(Corruption, match=r"a\.npy: not a whole \.npy file of numbers; write it again"):
        blocks(tmp_path / "a.npy")


@pytest.mark.parametrize(
    "kind", [pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())]
)
def test_parquet_text_that_is_no_utf8_is_replaced_and_counted(tmp_path: Path, kind: pyarrow.DataType) -> None:
    """It ended the build with an error of Python's, where JSON lines and text files go on."""
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


def make_encoder() -> Encoder:
    tokenizer = Tokenizer.from_str(tokenizer_json())
    fast = load_fast(tokenizer)
    assert isinstance(fast, Kitoken)
    return Encoder(tokenizer, fast)


@pytest.mark.parametrize("text", ["x <|im_end|> y", "'\n'medium'", "a\t's b", *SPECIALS])
def test_risky_documents_go_to_hugging_face(text: str) -> None:
    encoded = make_encoder().encode([text, "plain text"], seed=1)
    assert encoded.routed == 1
    assert encoded.ids == [tokenize(text), tokenize("plain text")]


def test_whitespace_tokens_are_no_risk() -> None:
    pattern = added_pattern(["\n\n", "    ", "<|x|>"])
    assert pattern.search("a\n\nb    c") is None
    assert pattern.search("a <|x|> b")
    assert added_pattern([]).search("anything") is None


def test_a_failed_check_sends_the_whole_block_to_hugging_face() -> None:
    """With a fast tokenizer that splits every character off, no block may keep its ids."""
    definition = json.loads(tokenizer_json())
    every = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
    definition["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [every, definition["pre_tokenizer"]]}
    other = Kitoken.from_tokenizers(json.dumps(definition).encode())
    encoder = Encoder(Tokenizer.from_str(tokenizer_json()), other)
    encoded = encoder.encode(make_texts(8), seed=3)
    assert encoded.differed > 0
    assert encoded.ids == [tokenize(text) for text in make_texts(8)]


def test_the_proof_passes_and_fails_for_good_reasons() -> None:
    tokenizer = Tokenizer.from_str(tokenizer_json())
    sample = Sample(make_texts(50), 1.0)
    good = prove(tokenizer, sample, "auto")
    assert good.fast
    assert good.documents == 50
    assert good.reason.startswith("equal ids for all 50 sampled documents")
    assert not prove(tokenizer, sample, "exact").fast
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "def": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    unread = prove(words, sample, "auto")
    assert not unread.fast
    assert "fast" in unread.reason


def test_a_tokenizer_without_an_id_for_a_word_is_refused() -> None:
    """The tokenizer's own bare exception came out of the build."""
    words = Tokenizer(models.WordLevel({"def": 0}))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(
        Unsupported, match=r"it cannot encode the corpus \(.*\); give one that has an id for every text"
    ):
        prove(words, Sample(["def other"], 1.0), "auto")
    encoder = BlockEncoder(EncodeSetup(options("a"), words.to_str(), False, 9))
    with pytest.raises(Unsupported, match="it cannot encode the corpus"):
        encoder.encode(Texts((("a", "def other"),)))


def test_options_are_checked() -> None:
    for more, message in (
        ({"segment_tokens": 0}, "segment tokens: 0 is not allowed; give 1 to"),
        ({"threads": -1}, "threads: -1 is not allowed"),
        ({"token_format": "u8"}, "token format: u8 is not allowed; give u16 or u32"),
        ({"mode": "merge"}, "mode: merge is not allowed; give one of new, append, replace"),
        ({"text_field": ""}, "text field: '' is not allowed"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            options("x", **more)
    with pytest.raises(InvalidArgument, match="corpora: none given"):
        options()


def test_segments_go_back_when_publishing_fails(tmp_path: Path) -> None:
    """They used to stay behind unlisted, and the next run sorted everything again."""
    (tmp_path / "segments").mkdir()
    workspace = Workspace(tmp_path)
    place = workspace.new_segment("g000001-00000.segment")
    place.parent.mkdir(parents=True)
    place.write_bytes(b"sorted")
    (tmp_path / "MANIFEST.tmp").mkdir()  # stands in the way like a full disk
    entry = SegmentEntry("g000001-00000.segment", 1, 1, 6, "00000000")
    with pytest.raises(ResourceExhausted, match="MANIFEST cannot be written"):
        workspace.publish(Manifest(1, (entry,), 9, 64, None, "2026-01-01T00:00:00Z"), None)
    assert place.read_bytes() == b"sorted"
    assert list((tmp_path / "segments").iterdir()) == []
