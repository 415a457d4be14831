"""A log whose bytes are changed anywhere is read up to the change, or refused; what is read was written."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from suffolk.datastore.errors import Corruption, Unsupported
from suffolk.serving.live_store.log import Log
from suffolk.serving.live_store.read_log import read_log
from suffolk.serving.live_store.record import Change, encode_body


def write_log(folder: Path) -> list[list[int]]:
    """Write 40 records in several files; return the tokens of each."""
    folder.mkdir()
    log, texts = Log(folder, read_log(folder), "none", file_bytes=600), []
    for sequence in range(1, 41):
        tokens = np.arange(sequence, sequence + 5 + sequence % 30, dtype=np.uint16)
        columns = (np.array([len(tokens)], np.uint32), np.array([sequence], np.uint64), np.zeros(1, np.uint64))
        log.write(encode_body(Change(tokens, *columns, np.zeros(1, np.int64), [b"{}"])), sequence)
        texts.append(tokens.tolist())
    log.close()
    return texts


def test_changed_bytes_are_never_read_as_documents(tmp_path: Path) -> None:
    texts = write_log(tmp_path / "log")
    files = sorted((tmp_path / "log").iterdir())
    chooser, refused, shortened = random.Random(1), 0, 0
    for _ in range(400):
        path = chooser.choice(files)
        good = path.read_bytes()
        place = chooser.randrange(len(good))
        path.write_bytes(good[:place] + bytes([good[place] ^ (1 << chooser.randrange(8))]) + good[place + 1 :])
        try:
            found = [change.tokens.tolist() for change in read_log(tmp_path / "log").changes]
            assert found == texts[: len(found)]
            assert path == files[-1]
            shortened += 1
        except (Corruption, Unsupported):
            refused += 1
        path.write_bytes(good)
    assert refused > shortened > 0
    assert [change.tokens.tolist() for change in read_log(tmp_path / "log").changes] == texts
