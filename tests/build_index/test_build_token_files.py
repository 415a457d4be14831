"""Tests corpora of token ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suffolk.build_index.block import BLOCK_TOKENS, TokenRun
from suffolk.build_index.encode_block import BlockEncoder, EncodeSetup
from suffolk.build_index.input_file import InputFile
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.reader import read_bin
from suffolk.build_index.target import find_target
from suffolk.datastore.errors import Corruption, InvalidArgument
from tests.support.build_blocks import blocks, options
from tests.support.building import tokenizer_json


def test_an_end_of_document_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer_json())
    chosen = BuildOptions(("a.npy",), tmp_path / "store", tokenizer=str(tmp_path), end_of_document=99_999)
    with pytest.raises(
        InvalidArgument, match="^end of document: 99999 is no id of the vocabulary of [0-9]+; give the id"
    ):
        find_target(chosen)


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
    assert encoded.origins == [("a.npy@101", {}), ("a.npy@105", {})]
    rows = TokenRun("p", 0, np.array([1, 2, 0, 3, 4]), (0, 3, 3, 5), tuple((f"p#{name}", {}) for name in "abcd"))
    assert encoder.encode(rows).origins == [("p#a", {}), ("p#c", {})]


@pytest.mark.parametrize("value", [-1, 500, 70_000])
def test_ids_out_of_range_are_named(value: int) -> None:
    encoder = BlockEncoder(EncodeSetup(options("a"), None, False, 500))
    with pytest.raises(
        InvalidArgument, match=rf"corpus a.bin: id {value} at position 12 is not in 0..499, .*--vocab-size"
    ):
        encoder.encode(TokenRun("a.bin", 10, np.array([1, 2, value], np.int64)))


@pytest.mark.parametrize(
    ("start", "dtype", "width", "message"),
    [
        (0, "<u4", "u16", "every second id is 0, as if its ids had 4 bytes; give --token-format u32"),
        (0, "<i8", "u32", "every second id is 0, as if its ids had 8 bytes; write them as .npy"),
        (20240520, "<u2", "u16", "it begins with the header of llm.c's token files; cut it off, as tail -c +1025 does"),
        (20240801, "<u4", "u32", "it begins with the header of llm.c's token files; cut it off, as tail -c +1025 does"),
    ],
)
def test_wider_ids_and_headers_are_no_ids(tmp_path: Path, start: int, dtype: str, width: str, message: str) -> None:
    header = np.array([start] + [0] * 255, "<i4").tobytes() if start else b""
    data = header + (np.arange(2000) % 500).astype(dtype).tobytes()
    (tmp_path / "a.bin").write_bytes(data)
    file = InputFile(str(tmp_path / "a.bin"), "bin", "", len(data), 0, True)
    with pytest.raises(InvalidArgument) as caught:
        list(read_bin(file, width, None))
    assert str(caught.value) == f"corpus {file.path}: {message}"


def test_a_few_ids_may_alternate_with_0(tmp_path: Path) -> None:
    np.array([5, 0] * 31, "<u2").tofile(tmp_path / "a.bin")
    assert blocks(tmp_path / "a.bin")[0].payload.ids.tolist() == [5, 0] * 31


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
    """Regression: numpy opens archives too, so they used to end in a Python error later."""
    with (tmp_path / "a.npy").open("wb") as file:
        np.savez(file, np.arange(4)) if content is None else file.write(content)
    with pytest.raises(InvalidArgument, match=r"a\.npy: zip archive \(unpack it\), which is not read"):
        blocks(tmp_path / "a.npy")
