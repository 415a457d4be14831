"""Tests that files are read in blocks of bounded size."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from suffolk.build_index.block import BLOCK_BYTES
from suffolk.build_index.inputs import find_inputs
from suffolk.build_index.read_parquet import BATCH_BYTES, _batches
from suffolk.datastore.errors import Corruption, InvalidArgument
from tests.support.build_blocks import blocks, options


def test_small_files_share_a_block(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a = 1\n")
    (tmp_path / "b.so").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "d.py").write_text("d = 4\n")
    (block,) = blocks(tmp_path)
    assert [text for _, text in block.payload.documents] == [b"a = 1\n", b"d = 4\n"]


def test_large_text_is_cut_at_line_ends_and_never_inside_a_character(tmp_path: Path) -> None:
    for name, text in (("lines.txt", "zeile äöü\n" * 300_000), ("one.txt", "日" * 900_000)):
        (tmp_path / name).write_text(text)
        pieces = [raw for block in blocks(tmp_path / name) for _, raw in block.payload.documents]
        assert len(pieces) > 1
        assert b"".join(pieces) == text.encode()
        assert "".join(piece.decode() for piece in pieces) == text
        assert max(map(len, pieces)) <= 2 * BLOCK_BYTES


@pytest.mark.parametrize("ending", ["", ".gz", ".zst", ".bz2", ".xz"])
def test_json_lines_come_in_whole_lines(tmp_path: Path, ending: str) -> None:
    data = b"".join(json.dumps({"text": "x" * (number % 9000)}).encode() + b"\n" for number in range(1600)).rstrip(
        b"\n"
    )
    frames = zstandard.compress(data[:5000]) + zstandard.compress(data[5000:])  # a stream may have several frames
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(
        {
            "": data,
            ".gz": gzip.compress(data[:5000]) + gzip.compress(data[5000:]),
            ".zst": frames,
            ".bz2": bz2.compress(data[:5000]) + bz2.compress(data[5000:]),
            ".xz": lzma.compress(data[:5000]) + lzma.compress(data[5000:]),
        }[ending]
    )
    found = blocks(path)
    assert len(found) >= 2
    assert b"".join(block.payload.data for block in found) == data
    lines = 1
    for block in found:
        assert block.payload.first_line == lines
        lines += block.payload.data.count(b"\n")
    assert found[-1].bytes_read == path.stat().st_size


@pytest.mark.parametrize(
    ("ending", "compress"),
    [(".gz", gzip.compress), (".zst", zstandard.compress), (".bz2", bz2.compress), (".xz", lzma.compress)],
)
def test_broken_streams_are_named(tmp_path: Path, ending: str, compress: Any) -> None:
    data = compress(b'{"text": "hello"}\n' * 1000)
    path = tmp_path / f"a.jsonl{ending}"
    for broken in (data[:-9], data[:6] + bytes(90)):
        path.write_bytes(broken)
        with pytest.raises(Corruption, match=rf"a\.jsonl\{ending}: broken .* stream .*; fetch the file again"):
            blocks(path)


@pytest.mark.parametrize(
    ("ending", "compress"), [(".gz", gzip.compress), (".zst", zstandard.compress), (".xz", lzma.compress)]
)
@pytest.mark.parametrize("frames", [1, 3])
def test_what_follows_a_stream_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ending: str, compress: Any, frames: int
) -> None:
    path, lines = tmp_path / f"a.jsonl{ending}", b'{"text": "hello"}\n' * 1000
    for behind, warnings in ((b"", 0), (bytes(200_000), 0), (b"garbage" * 20_000, 1), (bytes(7) + b"x", 1)):
        caplog.clear()
        kind = {".gz": "gzip", ".zst": "zstandard", ".xz": "xz"}[ending]
        path.write_bytes(compress(lines) * frames + behind)
        assert b"".join(block.payload.data for block in blocks(path)) == lines * frames
        assert [record.getMessage() for record in caplog.records] == [
            f"{path}: what follows the end of the {kind} stream is left out: it is no stream"
        ] * warnings


def test_a_small_stream_of_much_text_comes_in_blocks_of_bounded_size(tmp_path: Path) -> None:
    """Regression: two kilobytes of zstandard data used to decompress to one block of 64 MiB."""
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstandard.compress(b"\n" * (64 << 20)))
    sizes = [len(block.payload.data) for block in blocks(path)]
    assert sum(sizes) == 64 << 20
    assert max(sizes) <= BLOCK_BYTES + (16 << 20)


def test_long_rows_come_in_blocks_of_bounded_size(tmp_path: Path) -> None:
    """A batch of 256 long rows would be a block of a hundred megabytes, and a build has many blocks in memory at a time."""
    texts = [f"{number} " * (50_000 if number % 3 else 1) for number in range(300)]
    ids = [list(range(number * 1000)) for number in range(40)]
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet")
    parquet.write_table(pyarrow.table({"input_ids": ids}), tmp_path / "b.parquet")
    found = blocks(tmp_path / "a.parquet")
    sizes = [sum(len(row["text"]) for row in block.payload.rows) for block in found]
    assert max(sizes) <= BLOCK_BYTES
    assert [row["text"] for block in found for row in block.payload.rows] == [text.encode() for text in texts]
    assert [block.payload.first_row for block in found][1] == len(found[0].payload.rows) + 1
    assert found[-1].bytes_read == (tmp_path / "a.parquet").stat().st_size
    runs = [block.payload for block in blocks(tmp_path / "b.parquet", tokenizer=None)]
    assert max(run.ids.nbytes for run in runs) <= BLOCK_BYTES
    assert np.array_equal(np.concatenate([run.ids for run in runs]), np.concatenate(ids))
    assert [source for run in runs for source, _ in run.origins] == [
        f"{tmp_path}/b.parquet:{row}" for row in range(1, 41)
    ]


def test_few_long_conversations_are_read_at_a_time(tmp_path: Path) -> None:
    """Regression: pyarrow refused to read 256 conversations of 9 MB, because their texts do not fit one array."""
    texts = [f"{number} " * (1 << 18) for number in range(100, 160)]
    column = [[{"role": "user", "content": text}] for text in texts]
    parquet.write_table(pyarrow.table({"messages": column}), tmp_path / "a.parquet")
    with parquet.ParquetFile(tmp_path / "a.parquet") as table:
        batches = [batch for batch, _ in _batches(table, ["messages"], 1)]
    assert max(batch.nbytes for batch in batches) <= BATCH_BYTES + (1 << 20)
    assert sum(batch.num_rows for batch in batches) == len(texts)


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    names = ["text", "text", "id", "id"]
    parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 4, names=names), tmp_path / "a.parquet")
    with pytest.raises(InvalidArgument, match=r"a.parquet: 2 columns are named 'text'; rename the others"):
        blocks(tmp_path / "a.parquet")
    names[1] = "other"
    parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 4, names=names), tmp_path / "a.parquet")
    assert len(blocks(tmp_path / "a.parquet")) == 1
    with pytest.raises(InvalidArgument, match="2 columns are named 'id'"):
        blocks(tmp_path / "a.parquet", id_field="id")


def test_fields_of_one_name_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    twice = pyarrow.StructArray.from_arrays([pyarrow.array(["a"])] * 3, names=["role", "content", "content"])
    turns = pyarrow.ListArray.from_arrays(pyarrow.array([0, 1], pyarrow.int32()), twice)
    parquet.write_table(pyarrow.table({"messages": turns, "a": twice, "text": ["b"]}), file)
    cases: list[tuple[str, dict[str, Any]]] = [("messages", {"records": "chat"}), ("a", {"text_field": "a.role"})]
    for wanted, named in (*cases, ("a", {"metadata": ("a.role",)})):
        with pytest.raises(InvalidArgument, match=f"column '{wanted}' has 2 fields named 'content'; rename the others"):
            blocks(file, **named)
    assert len(blocks(file)) == 1


def test_metadata_of_other_parquet_files_are_left_out(tmp_path: Path) -> None:
    """As Dask writes them beside the files."""
    table, metadata = pyarrow.table({"text": ["a"]}), list[Any]()
    parquet.write_table(table, tmp_path / "part.0.parquet", metadata_collector=metadata)
    metadata[0].set_file_path("part.0.parquet")
    parquet.write_metadata(table.schema, tmp_path / "_metadata", metadata)
    found = find_inputs(options(tmp_path))
    assert [Path(file.path).name for file in found.files] == ["part.0.parquet"]
    assert found.skipped == {"Parquet metadata of other files": 1}
