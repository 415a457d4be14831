"""Tests corpora of Arrow files, as ``datasets`` and pandas write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import feather

from suffolk.build_index.documents import parse_documents
from suffolk.build_index.inputs import find_inputs
from suffolk.build_index.reader import read_blocks
from suffolk.datastore.errors import Corruption, InvalidArgument
from tests.support.build_blocks import blocks, options

TEXTS = [f"Text {number} é" for number in range(5)]


def write_stream(path: Path, table: Any, rows: int = 1000) -> None:
    """As ``Dataset.save_to_disk`` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


def texts(path: Path, **more: Any) -> list[str]:
    chosen = options(path, **more)
    return [text for block in blocks(path, **more) for text in parse_documents(block.payload, chosen).texts]


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather_files_are_read(tmp_path: Path, compression: str) -> None:
    table = pyarrow.table({"text": TEXTS, "id": range(5)})
    feather.write_feather(table, tmp_path / "a.feather", compression=compression, chunksize=2)
    assert texts(tmp_path) == TEXTS
    assert texts(tmp_path / "a.feather") == TEXTS


def test_the_folder_of_a_saved_data_set_is_read(tmp_path: Path) -> None:
    meta = [{"source": "a", "stars": number} for number in range(5)]
    table = pyarrow.table({"content": pyarrow.array(TEXTS, "large_string"), "meta": meta, "id": range(5)})
    write_stream(tmp_path / "train/data-00000-of-00001.arrow", table, 2)
    chosen = options(tmp_path, text_field="content", id_field="id", metadata=("meta.stars",))
    found = list(read_blocks(find_inputs(chosen), chosen, "uint32"))
    documents = [parse_documents(block.payload, chosen) for block in found]
    assert [text for each in documents for text in each.texts] == TEXTS
    assert [kept for each in documents for _, kept in each.origins] == [{"meta.stars": number} for number in range(5)]
    assert [source.rpartition("#")[2] for each in documents for source, _ in each.origins] == list("01234")
    sizes = [block.bytes_read for block in found]
    assert sizes == sorted(sizes)
    assert sizes[-1] <= find_inputs(chosen).size
    resumed = list(read_blocks(find_inputs(chosen), chosen, "uint32", found[0].next))
    assert [block.payload for block in resumed] == [block.payload for block in found[1:]]


def test_conversations_of_arrow_files_are_records(tmp_path: Path) -> None:
    messages = [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]]
    write_stream(tmp_path / "chat.arrow", pyarrow.table({"messages": messages}))
    (block,) = blocks(tmp_path)
    assert block.payload.rows[0]["messages"][1] == {"role": "assistant", "content": "b"}


def test_damaged_arrow_files_are_named(tmp_path: Path) -> None:
    write_stream(tmp_path / "a.arrow", pyarrow.table({"text": TEXTS * 1000}), 100)
    data = (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "a.arrow").write_bytes(data[: len(data) // 2])
    with pytest.raises(Corruption, match=r"a.arrow: damaged Arrow file"):
        blocks(tmp_path)
    (tmp_path / "a.arrow").write_bytes(data[:40])
    with pytest.raises(Corruption, match=r"a.arrow: damaged Arrow file"):
        blocks(tmp_path)


def test_other_files_may_begin_like_arrow_streams(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "flash.img").write_bytes(b"\xff" * 4096)
    [skipped] = find_inputs(options(tmp_path)).unread
    assert skipped.place.endswith("flash.img")


@pytest.mark.parametrize("cut", [8, 200])
def test_a_stream_that_may_have_been_cut_is_damaged(tmp_path: Path, cut: int) -> None:
    """A stream that was cut between two batches looks like a whole one without an end mark."""
    write_stream(tmp_path / "a.arrow", pyarrow.table({"text": TEXTS}), 1)
    whole = (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "a.arrow").write_bytes(whole[:-cut])
    with pytest.raises(Corruption, match="damaged Arrow file"):
        texts(tmp_path)


def test_a_stream_without_its_ending_is_named(tmp_path: Path) -> None:
    write_stream(tmp_path / "a", pyarrow.table({"text": TEXTS}))
    (tmp_path / "b.txt").write_text("some text")
    [problem] = find_inputs(options(tmp_path)).skipped
    assert "Arrow stream whose name lacks .arrow" in problem


def test_conversations_that_are_missing_are_named(tmp_path: Path) -> None:
    write_stream(tmp_path / "a.arrow", pyarrow.table({"text": TEXTS}))
    with pytest.raises(InvalidArgument, match="no column of conversations; it has text"):
        texts(tmp_path, records="chat")
