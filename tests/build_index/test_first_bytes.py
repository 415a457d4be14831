"""Tests that the first bytes of a file tell its form: compressed in several frames, or a text that begins like a table."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from suffolk.build_index.input_file import unpack_start
from tests.build_index.test_input_forms import texts

PACKINGS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress}
packings = pytest.mark.parametrize("pack", PACKINGS.values(), ids=PACKINGS)
RECORDS = "".join(json.dumps({"text": text}) + "\n" for text in ("A first text.", "A second text.", "A third one."))


@packings
@pytest.mark.parametrize("cut", [0, 3, 12, 30])
def test_a_record_may_be_in_several_frames(tmp_path: Path, pack: Callable[[bytes], bytes], cut: int) -> None:
    """Regression: the form came from the first frame alone, so an empty one made a text of JSON lines."""
    data = RECORDS.encode()
    (tmp_path / "a.json.packed").write_bytes(pack(data[:cut]) + pack(data[cut:]))
    assert texts(tmp_path) == (
        ["A first text.", "A second text.", "A third one."],
        [f"a.json.packed:{number}" for number in (1, 2, 3)],
    )


@packings
def test_the_start_of_a_file_is_no_longer_than_asked(pack: Callable[[bytes], bytes]) -> None:
    parts = [random.Random(at).randbytes(4000) for at in range(20)]
    packed = b"".join(map(pack, parts))
    name = {"gz": "gzip", "bz2": "bzip2", "xz": "xz", "zst": "zstandard"}[
        next(k for k, p in PACKINGS.items() if p is pack)
    ]
    assert unpack_start(name, packed, 9000) == b"".join(parts)[:9000]
    assert unpack_start(name, packed[:12000], 1 << 20)[:8000] == b"".join(parts)[:8000]
    assert unpack_start(name, b"no stream", 9000) == b""


@pytest.mark.parametrize("text", ["PARENTS' GUIDE\n", "PAR1 is a gene.\n", "ARROW1 is a rocket.\n", "BZh is a name.\n"])
def test_a_text_may_begin_like_another_form(tmp_path: Path, text: str) -> None:
    """Regression: it was an encrypted or damaged table, or a damaged stream, which ended the build."""
    (tmp_path / "a.txt").write_text(text * 100)
    assert texts(tmp_path)[0] == [text * 100]
