"""Copies a datastore to a URL, and publishes it there as the newest generation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from suffolk.build_index.progress import WorkProgress
from suffolk.datastore.checks import check_range
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.errors import Corruption, NotFound, PermissionDenied
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.manifest import SEGMENTS_NAME, read_manifest
from suffolk.datastore.open_segment import open_segment
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.datastore.segment import SegmentEntry
from suffolk.serving.store.storage.fetch import Meter
from suffolk.serving.store.storage.generations import (
    generation_numbers,
    missing_segments,
    prune,
    publish_generation,
    read_kept,
    require_empty,
    require_no_clash,
    require_same_kind,
    same_content,
)
from suffolk.serving.store.storage.origin import read_origin, record_origin

KEEP = 3
"""Generations that stay at the URL, by default."""
PARALLEL = 4
"""Files that are sent at the same time."""


@dataclass(frozen=True, slots=True)
class PushReport:
    """The outcome of a push.

    Attributes:
        store, url: the datastore's folder, and the URL. The folder is empty if it was a temporary one.
        generation: number of the newest generation at the URL.
        published: whether this push published it. Otherwise the URL held the same content before.
        segments, bytes: number and size of the segments of the generation.
        sent_files, sent_bytes: the part of these that was not at the URL before.
        removed_files: number of segments that were removed because no kept generation names them.
        seconds: wall time; 0 if a build sent the segments while it made them.
    """

    store: str
    url: str
    generation: int
    published: bool
    segments: int
    bytes: int
    sent_files: int
    sent_bytes: int
    removed_files: int
    seconds: float


def push(store: str | Path, url: str, keep: int = KEEP, progress: WorkProgress | None = None) -> PushReport:
    """Publish the published generation of ``store`` at ``url``. Readers see the old generation or the new one.

    Only segments that are missing there are sent. Their checksums are verified first. After an interruption, a further call
    sends only what is still missing. The newest ``keep`` generations stay.

    Raises:
        NotFound: there is no datastore, or no such bucket.
        InvalidArgument: ``keep`` is below 1, the URL holds other files, or a segment of an early version has a taken name.
        Unsupported: tokenizer, vocabulary or order depth differ from the datastore at ``url``.
        Corruption: a file of the datastore is damaged.
        Unavailable: the store cannot be reached, or another process published at the same time.
        PermissionDenied, ResourceExhausted: the store refuses.
    """
    check_range("keep", keep, 1)
    path, remote, show = Path(store), RemoteFolder(url), progress or WorkProgress()
    while True:
        generation = read_manifest(path).generation
        try:
            with open_datastore(path) as datastore:
                return _push(datastore, remote, keep, show, time.monotonic())
        except (NotFound, Corruption):
            if read_manifest(path).generation == generation:
                raise  # otherwise a newer generation was published, and removed this one's files


def _push(datastore: Datastore, remote: RemoteFolder, keep: int, show: WorkProgress, began: float) -> PushReport:
    manifest = datastore.manifest
    numbers = generation_numbers(remote)
    if not numbers:
        require_empty(remote)
    kept = read_kept(remote, numbers[-keep:])
    newest = kept[-1] if kept else None
    if newest is not None:
        require_same_kind(remote.url, newest, manifest)
        require_no_clash(remote.url, kept, manifest)
    sent = _send_missing(datastore, remote, show)
    _send_tokenizer(datastore, remote)
    failpoint("push.sent")
    published = newest is None or not same_content(newest, manifest)
    if newest is None or published:
        newest = publish_generation(remote, manifest, numbers[-1] + 1 if numbers else 1)
        failpoint("push.published")
        sent += _send_missing(datastore, remote, show)  # another push may have removed segments found before
    _record(datastore, remote.url)
    return PushReport(
        store=str(datastore.path),
        url=remote.url,
        generation=newest.generation,
        published=published,
        segments=len(manifest.files()),
        bytes=sum(entry.bytes for entry in manifest.files()),
        sent_files=len(sent),
        sent_bytes=sum(entry.bytes for entry in sent),
        removed_files=prune(remote, keep),
        seconds=time.monotonic() - began,
    )


def _record(datastore: Datastore, url: str) -> None:
    """Let later pulls from ``url`` replace the datastore. The record of a pull from another URL stays."""
    origin = read_origin(datastore.path)
    if origin is None or origin.url == url:
        with suppress(PermissionDenied):  # no pull to that folder is possible
            record_origin(datastore.path, url, datastore.manifest)


def _send_missing(datastore: Datastore, remote: RemoteFolder, show: WorkProgress) -> list[SegmentEntry]:
    """Verify the segments that are not at the URL, and send them. Returns their entries."""
    missing = missing_segments(remote, datastore.manifest)
    if missing:
        size = sum(entry.bytes for entry in missing)
        checking = Meter(show, "checking", size)
        for entry in missing:
            open_segment(datastore.path / SEGMENTS_NAME, entry, datastore.manifest).native.verify("checksums")
            checking.add(entry.bytes)
        _send(datastore.path, remote, missing, Meter(show, "sending", size))
    return missing


def _send(store: Path, remote: RemoteFolder, entries: Sequence[SegmentEntry], meter: Meter) -> None:
    """Send files, PARALLEL at a time. After an error or Ctrl-C, running transfers are given up. None of their files
    appears."""
    names = [f"{SEGMENTS_NAME}/{entry.name}" for entry in entries]
    with ThreadPoolExecutor(PARALLEL) as pool:
        sendings = [pool.submit(remote.upload, store / name, name, meter.add) for name in names]
        try:
            for sending in as_completed(sendings):
                sending.result()
                failpoint("push.segment")
        except BaseException:
            meter.stop()
            pool.shutdown(cancel_futures=True)
            raise


def _send_tokenizer(datastore: Datastore, remote: RemoteFolder) -> None:
    path = datastore.tokenizer_path()
    if datastore.manifest.tokenizer is None or (path and remote.sizes().get(path.name) == path.stat().st_size):
        return
    datastore.tokenizer()  # raises Corruption if the file is missing or damaged
    assert path is not None
    remote.upload(path, path.name, lambda size: None)
