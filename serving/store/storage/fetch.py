"""Fetches segment files in parts, several at a time, and verifies them. Counts the bytes of a transfer."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from suffolk.build_index.progress import WorkProgress
from suffolk.build_index.report import megabytes
from suffolk.build_index.workspace import disk_errors
from suffolk.datastore.errors import Corruption, NotFound, Unavailable
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, tokenizer_name
from suffolk.datastore.open_segment import open_segment
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.datastore.segment import SegmentEntry
from suffolk.datastore.tokenizer import fingerprint, parse_tokenizer

PART_BYTES = 8 << 20
PARALLEL = 16
"""Parts that are fetched at the same time."""


def fetch_segments(
    remote: RemoteFolder, manifest: Manifest, entries: Sequence[SegmentEntry], folder: Path, meter: Meter
) -> None:
    """Fetch the segments ``entries`` of ``manifest`` to ``folder``. A file gets its name when it is complete, verified and
    synced.

    Parts are written in order to ``.NAME.part``. A further call goes on after the last whole part there. Memory: 128 MiB.

    Raises:
        Corruption: a file at the URL is damaged, or has another size.
        NotFound: a file is missing. ResourceExhausted: the disk is full. Others are those of ``RemoteFolder``.
    """
    _require_whole(remote, entries)
    running: deque[tuple[_Part, Future[bytes]]] = deque()
    try:
        for part in _parts(folder, entries):
            if len(running) == PARALLEL:
                meter.add(_write(remote, manifest, folder, *running.popleft()))
            running.append((part, remote.begin_read(part.name, part.start, part.end)))
        while running:
            meter.add(_write(remote, manifest, folder, *running.popleft()))
    finally:
        for _, reading in running:
            reading.cancel()


def fetch_tokenizer(remote: RemoteFolder, manifest: Manifest) -> str | None:
    """The tokenizer of ``manifest`` at the URL; None if it has none. Raises Corruption: it is damaged."""
    if manifest.tokenizer is None:
        return None
    name = tokenizer_name(manifest.tokenizer)
    content = remote.read(name)
    try:
        whole = fingerprint(parse_tokenizer(content)) == manifest.tokenizer
    except Corruption:
        whole = False
    if not whole:
        raise _damaged(remote.place(name))
    return content.decode()


def fetched_bytes(folder: Path, entry: SegmentEntry) -> int:
    """Bytes of the segment that an interrupted fetch left in ``folder``: whole parts, without the segment's last part."""
    path = _part_path(folder, entry)
    size = path.stat().st_size if path.is_file() else 0
    return min(size, entry.bytes - 1) // PART_BYTES * PART_BYTES


def remove_parts(folder: Path) -> None:
    """Remove the files that interrupted fetches left."""
    for path in folder.glob(".*.part"):
        path.unlink()


def _damaged(place: str) -> Corruption:
    """The error for a damaged file at a URL."""
    return Corruption(
        f"{place} is damaged, there or on the way; run the command again. If that fails too, remove that file and push the "
        "datastore again from a whole copy"
    )


def _part_path(folder: Path, entry: SegmentEntry) -> Path:
    return folder / f".{entry.name}.part"


def _require_whole(remote: RemoteFolder, entries: Sequence[SegmentEntry]) -> None:
    sizes = remote.sizes(SEGMENTS_NAME) if entries else {}
    for entry in entries:
        place = remote.place(f"{SEGMENTS_NAME}/{entry.name}")
        if entry.name not in sizes:
            raise NotFound(f"{place} is missing; push the datastore again from a whole copy")
        if sizes[entry.name] != entry.bytes:
            raise Corruption(
                f"{place} has {sizes[entry.name]} bytes and not {entry.bytes}; push the datastore again from a whole copy"
            )


class _Part(NamedTuple):
    """The bytes from ``start`` to ``end``, exclusive, of a segment."""

    entry: SegmentEntry
    start: int
    end: int

    @property
    def name(self) -> str:
        """The name of the segment's file at the URL."""
        return f"{SEGMENTS_NAME}/{self.entry.name}"


def _parts(folder: Path, entries: Sequence[SegmentEntry]) -> Iterator[_Part]:
    """The parts to fetch, in order."""
    for entry in entries:
        for start in range(fetched_bytes(folder, entry), entry.bytes, PART_BYTES):
            yield _Part(entry, start, min(start + PART_BYTES, entry.bytes))


def _write(remote: RemoteFolder, manifest: Manifest, folder: Path, part: _Part, reading: Future[bytes]) -> int:
    """Write a part when it has arrived. After the last part, verify the file and give it its name. Returns the part's bytes."""
    data = remote.end_read(part.name, part.end - part.start, reading)
    path = _part_path(folder, part.entry)
    with disk_errors(path):
        path.touch()
        with open(path, "r+b") as file:
            file.seek(part.start)
            file.write(data)
            file.flush()
            if part.end == part.entry.bytes:
                os.fsync(file.fileno())
    failpoint("pull.part")
    if part.end == part.entry.bytes:
        try:
            open_segment(folder, replace(part.entry, name=path.name), manifest).native.verify("checksums")
        except Corruption as error:
            path.unlink()
            raise _damaged(remote.place(part.name)) from error
        path.rename(folder / part.entry.name)
        failpoint("pull.segment")
    return len(data)


class Meter:
    """The progress of a transfer of ``total`` bytes. Thread-safe."""

    def __init__(self, show: WorkProgress, work: str, total: int) -> None:
        self._show, self._work, self._total = show, work, total
        self._done = 0
        self._began = time.monotonic()
        self._stopped = False
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Count ``size`` further bytes.

        Raises:
            Unavailable: after ``stop``, so that the transfer ends.
        """
        with self._lock:
            if self._stopped:
                raise Unavailable("the transfer was stopped")
            self._done += size
            rate = self._done / max(time.monotonic() - self._began, 1e-9)
            facts = f"{megabytes(self._done)} of {megabytes(self._total)}, {rate / 1e6:.1f} MB/s"
            self._show.advance(self._work, self._done / max(1, self._total), facts)

    def stop(self) -> None:
        """Let the next ``add`` of any thread raise."""
        with self._lock:
            self._stopped = True
