"""Logs of live stores for tests: made-up changes, and what a log gives back."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from suffolk.serving.store.live_store.log import FILE_BYTES, NONE, Log
from suffolk.serving.store.live_store.read_log import read_log
from suffolk.serving.store.live_store.record import Change, encode_body


def make_change(sequence: int, *documents: list[int], removed: tuple[int, ...] = (), drop_before: int = 0) -> Change:
    count = len(documents)
    return Change(
        np.array([token for document in documents for token in document], np.uint16),
        np.array([len(document) for document in documents], np.uint32),
        np.arange(sequence, sequence + count, dtype=np.uint64),
        np.arange(count, dtype=np.uint64),
        np.full(count, 1_700_000_000, np.int64),
        [f"origin {number}".encode() for number in range(count)],
        np.array(removed, np.uint64),
        drop_before,
    )


def open_log(folder: Path, durability: str = NONE, file_bytes: int = FILE_BYTES) -> Log:
    folder.mkdir(exist_ok=True)
    log = Log(folder, read_log(folder), durability)
    log.file_bytes = file_bytes
    return log


def write(log: Log, sequence: int, *documents: list[int]) -> int:
    return log.write(encode_body(make_change(sequence, *documents)), sequence + len(documents) - 1)


def sequences(folder: Path) -> list[int]:
    return [int(each) for change in read_log(folder).changes for each in change.sequences]
