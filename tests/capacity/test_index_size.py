"""The size of a segment from the file format is that of real files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suffolk.capacity.index_size import segment_bytes, token_width
from tests.support.stores import make_store

SECTION_GAPS = 8 * 64
"""Each section begins at a multiple of 64."""


@pytest.mark.parametrize(("vocab_size", "width"), [(40, 2), (65_535, 2), (65_536, 3), (20_000_000, 4)])
def test_the_size_of_a_real_segment(tmp_path: Path, vocab_size: int, width: int) -> None:
    documents = np.random.default_rng(0).integers(0, vocab_size, (50, 400)).tolist()
    with make_store(tmp_path / "store", [documents], vocab_size=vocab_size) as store:
        (entry,) = store.manifest.segments
        assert token_width(vocab_size) == store.info()["token_width"] == width
        without_table = segment_bytes(entry.tokens, entry.documents, vocab_size, 0)
        assert (
            0 < entry.bytes - without_table < SECTION_GAPS + 20 * entry.documents
        )  # rows such as "segment 0 document 7"
