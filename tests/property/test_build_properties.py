"""Tests properties of builds for any text and any split of a corpus."""

from __future__ import annotations

import os
import tempfile
from glob import glob
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kitoken import Kitoken
from tokenizers import Tokenizer

from suffolk.build_index.block import Lines, Texts, TokenRun
from suffolk.build_index.documents import parse_documents
from suffolk.build_index.encode_block import BlockEncoder, EncodeSetup
from suffolk.build_index.encoder import Encoder
from suffolk.build_index.inputs import find_inputs
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.proof import load_fast
from suffolk.build_index.reader import read_blocks
from tests.support.building import SPECIALS, tokenize, tokenizer_json
from tests.support.examples import examples

OPTIONS = BuildOptions(corpora=("any",), output=Path("/nowhere"), tokenizer="some")
PIECES = [
    *SPECIALS,
    "'s",
    "'ll",
    "'",
    "\n",
    "\r\n",
    "\t",
    " ",
    "  ",
    "foo",
    "B",
    "12",
    "é",
    "\u0301",
    "中",
    "\u00a0",
    "\u2028",
    "\x1c",
    "\x85",
    "==",
]
TEXT = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))


def make_encoder() -> Encoder:
    tokenizer = Tokenizer.from_str(tokenizer_json())
    fast = load_fast(tokenizer)
    assert isinstance(fast, Kitoken)
    return Encoder(tokenizer, fast)


ENCODER = make_encoder()


@examples(200)
@given(TEXT)
def test_the_fast_path_gives_the_ids_of_hugging_face(text: str) -> None:
    ids, counts = ENCODER.encode([text], seed=0)
    assert ids == [tokenize_with(text)]
    assert counts.differed == 0


def tokenize_with(text: str) -> list[int]:
    return ENCODER.encode_exactly([text])[0]


@examples(100)
@given(st.binary(max_size=200))
def test_any_bytes_become_text_that_can_be_tokenized(data: bytes) -> None:
    found = parse_documents(Texts((("a", data),)), OPTIONS)
    assert found.texts == [data.decode(errors="replace")]
    assert (found.replaced > 0) == (not _is_utf8(data))
    found.texts[0].encode()


@examples(200)
@given(
    ids=st.lists(st.integers(0, 9), max_size=60),
    rows=st.lists(st.integers(0, 60), max_size=6),
    end=st.one_of(st.none(), st.integers(0, 9)),
)
def test_token_runs_are_split_like_lists(ids: list[int], rows: list[int], end: int | None) -> None:
    starts = sorted({0, *(row for row in rows if row <= len(ids))})
    options = BuildOptions(corpora=("a",), output=Path("/nowhere"), vocab_size=10, end_of_document=end)
    run = TokenRun("a", 0, np.array(ids, np.uint16), tuple(starts))
    encoded = BlockEncoder(EncodeSetup(options, None, False, 10)).encode(run)
    expected: list[tuple[int, list[int]]] = []
    for start, stop in zip(starts, [*starts[1:], len(ids)], strict=True):
        expected.append((start, []))
        for place in range(start, stop):
            if ids[place] == end:
                expected.append((place + 1, []))
            else:
                expected[-1][1].append(ids[place])
    expected = [(start, document) for start, document in expected if document]
    assert encoded.tokens.tolist() == [token for _, document in expected for token in (*document, 0xFFFF)]
    assert encoded.origins == [(f"a@{start}", {}) for start, _ in expected]


@examples(20)
@given(sizes=st.lists(st.integers(0, 700_000), min_size=1, max_size=8), data=st.data())
def test_reading_on_after_any_block_gives_the_rest(sizes: list[int], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, size in enumerate(sizes):
            name = f"{number}.jsonl" if number % 3 == 2 else f"{number}.txt"
            line = b'{"text": "0123456789"}\n'
            Path(folder, name).write_bytes(line * (size * (1 + number % 2 * 4) // len(line)))
        options = BuildOptions(corpora=(folder,), output=Path("/nowhere"), tokenizer="some")
        if not any(map(os.path.getsize, glob(f"{folder}/*"))):
            return
        inputs = find_inputs(options)
        whole = list(read_blocks(inputs, options, "u16"))
        if not whole:
            return
        chosen = data.draw(st.integers(0, len(whole) - 1))
        rest = list(read_blocks(inputs, options, "u16", whole[chosen].next))
        assert rest == whole[chosen + 1 :]
        assert all(isinstance(block.payload, (Lines, Texts)) for block in whole)
        assert [block.bytes_read for block in whole] == sorted(block.bytes_read for block in whole)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_encoding_many_at_once_equals_one_at_a_time() -> None:
    texts = [f"it's {special} number {number}\n'\t'll" for number, special in enumerate(SPECIALS * 30)] + ["plain"] * 70
    assert ENCODER.encode(texts, seed=5)[0] == [tokenize(text) for text in texts]
