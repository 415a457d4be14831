"""Tests damaged files: they end a build, or the rest of a file is left out and counted."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
import zstandard
from pyarrow import ipc, parquet

from suffolk.build_index.documents import parse_documents
from suffolk.cli.main import main
from suffolk.datastore.errors import Corruption
from tests.build_index.test_input_forms import texts
from tests.support.build_blocks import blocks, options
from tests.support.building import read_documents, write_tokenizer

TEXTS = [f"text {number}, {number * 7919 % 1000003:x}" for number in range(20_000)]
LINES = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": lambda data: bz2.compress(data, 1),
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
SKIP = {"on_error": "skip"}


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.parametrize("name", ["b.jsonl", "b.json", "b.txt"])
def test_a_cut_off_stream_is_read_up_to_its_end(tmp_path: Path, packing: str, name: str) -> None:
    array = b"[" + LINES.strip().replace(b"\n", b",\n") + b"]"
    plain = "\n".join(TEXTS)
    whole = PACKED[packing]({"b.jsonl": LINES, "b.json": array, "b.txt": plain.encode()}[name])
    (tmp_path / f"{name}.{packing}").write_bytes(whole[: len(whole) * 3 // 4])
    (tmp_path / "c.jsonl").write_text('{"text": "the last one"}\n')
    with pytest.raises(
        Corruption, match=f"{name}.{packing}: broken .*; or leave out the rest of it with --on-error sk"
    ):
        texts(tmp_path)
    found, _ = texts(tmp_path, **SKIP)
    assert found[-1] == "the last one"
    if name == "b.txt":
        assert len("".join(found[:-1])) > len(plain) // 3  # zstd writes 128 KiB at a time
        assert plain.startswith("".join(found[:-1]))
    else:
        assert len(TEXTS) // 2 < len(found) < len(TEXTS)
        assert found[:-1] == TEXTS[: len(found) - 1]
    assert any("its rest: broken" in reason for reason in left_out(tmp_path))


def left_out(path: Path) -> list[str]:
    """The reasons of what is left out."""
    chosen = options(path, **SKIP)
    return [each.reason for block in blocks(path, **SKIP) for each in parse_documents(block.payload, chosen).left_out]


@pytest.mark.parametrize("size", [40, 0.5, 0.9])
@pytest.mark.parametrize("name", ["b.parquet", "b.arrow"])
def test_a_cut_off_table_is_left_out(tmp_path: Path, name: str, size: float) -> None:
    table, path = pyarrow.table({"text": TEXTS}), tmp_path / name
    if name == "b.parquet":
        parquet.write_table(table, path)
    else:
        with ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    whole = path.read_bytes()
    path.write_bytes(whole[: size if isinstance(size, int) else int(len(whole) * size)])
    (tmp_path / "c.jsonl").write_text('{"text": "the last one"}\n')
    with pytest.raises(Corruption, match="damaged"):
        texts(tmp_path)
    assert texts(tmp_path, **SKIP)[0][-1] == "the last one"
    assert any("its rest: damaged" in reason for reason in left_out(tmp_path))


def test_the_command_counts_and_names_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also for a compressed text alone, which holds no records."""
    path, store = tmp_path / "b.txt.gz", tmp_path / "store"
    path.write_bytes(gzip.compress(b"some text\n" * 9)[:-6])
    command = ["build", str(path), "--output", str(store), "--tokenizer", write_tokenizer(tmp_path)]
    assert main(command) == 2
    assert "--on-error skip" in capsys.readouterr().err
    assert main([*command, "--on-error", "skip", "--skipped", str(tmp_path / "skipped.jsonl")]) == 0
    assert capsys.readouterr().err.count(f"left out {path}: its rest: broken gzip stream") == 1
    [(_, tokens)] = read_documents(store)
    assert tokens
    [line] = (tmp_path / "skipped.jsonl").read_text().splitlines()
    assert json.loads(line)["place"] == str(path)
