"""Copies a generation of a datastore from a URL to a folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suffolk.build_index.progress import WorkProgress
from suffolk.build_index.report import megabytes
from suffolk.build_index.workspace import Workspace, open_workspace
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, ResourceExhausted
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.manifest import MANIFEST_NAME, SEGMENTS_NAME, Manifest, read_manifest
from suffolk.datastore.open_segment import open_segment
from suffolk.datastore.readers import READERS_NAME
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.datastore.segment import SegmentEntry
from suffolk.serving.store.live_store.identity import is_live
from suffolk.serving.store.storage.fetch import Meter, fetch_segments, fetch_tokenizer, fetched_bytes, remove_parts
from suffolk.serving.store.storage.generations import (
    newest_number,
    read_generation,
    require_no_clash,
    require_same_kind,
)
from suffolk.serving.store.storage.origin import ORIGIN_NAME, record_origin, require_replaceable

FREE_BYTES = 64 << 20
"""Free space that a pull leaves on the disk."""


@dataclass(frozen=True, slots=True)
class PullReport:
    """The outcome of a pull.

    Attributes:
        url, store: the URL, and the folder of the copy.
        generation: number of the generation that the folder holds.
        changed: whether this pull changed the folder. Otherwise the folder held that generation before.
        segments, bytes: number and size of its segments.
        fetched_files, fetched_bytes: the part of these that the folder lacked.
        seconds: wall time.
    """

    url: str
    store: str
    generation: int
    changed: bool
    segments: int
    bytes: int
    fetched_files: int
    fetched_bytes: int
    seconds: float


def pull(
    url: str,
    store: str | Path,
    generation: int | None = None,
    replace: bool = False,
    progress: WorkProgress | None = None,
) -> PullReport:
    """Make ``store`` a copy of a generation at ``url``. Readers of the folder see the old generation or the new one.

    Only segments that the folder lacks are fetched. Checksums are verified before a file gets its name. After an interruption, a
    further call goes on in the middle of a file. Files of the old generation are removed at the end.

    Args:
        generation: None: the newest.
        replace: whether to replace a datastore that is not an unchanged copy of ``url``.

    Raises:
        NotFound: there is no datastore, or no such generation.
        InvalidArgument: ``store`` is a live datastore; or, without ``replace``, it is not an unchanged copy of ``url``.
        Unsupported: tokenizer, vocabulary or order depth differ from ``store``, or a newer version wrote the files.
        Corruption: a file at ``url`` is damaged or missing.
        ResourceExhausted: the disk has too little space.
        Unavailable: the store cannot be reached, or another process writes to the folder.
        PermissionDenied: the store or the disk refuses.
    """
    remote, path, show, began = RemoteFolder(url), Path(store), progress or WorkProgress(), time.monotonic()
    while True:
        number = newest_number(remote) if generation is None else generation
        try:
            manifest = read_generation(remote, number)
            with open_workspace(path, (f"{ORIGIN_NAME}*", READERS_NAME)) as workspace:
                return _pull(remote, manifest, workspace, replace, show, began)
        except NotFound:
            if generation is not None or newest_number(remote) == number:
                raise  # otherwise a push removed this generation


def _pull(
    remote: RemoteFolder, manifest: Manifest, workspace: Workspace, replace: bool, show: WorkProgress, began: float
) -> PullReport:
    store, segments = workspace.store, workspace.store / SEGMENTS_NAME
    workspace.refuse_unfinished("pull")
    current = read_manifest(store) if (store / MANIFEST_NAME).exists() else None
    if current is not None and current != manifest:
        _require_place(store, remote.url, current, manifest, replace)
    missing = [entry for entry in manifest.files() if not _is_whole(segments, entry, manifest)]
    changed = current != manifest or bool(missing)
    if changed:
        segments.mkdir(exist_ok=True)
        _require_disk(segments, missing)
        fetch_segments(remote, manifest, missing, segments, Meter(show, "fetching", _bytes(missing)))
        tokenizer = fetch_tokenizer(remote, manifest)
        record_origin(store, remote.url, *([manifest] if current is None else [current, manifest]))
        failpoint("pull.fetched")
        workspace.publish(manifest, tokenizer)
    workspace.finish(manifest)  # also if an earlier pull was killed before this line
    remove_parts(segments)
    return PullReport(
        url=remote.url,
        store=str(store),
        generation=manifest.generation,
        changed=changed,
        segments=len(manifest.files()),
        bytes=_bytes(manifest.files()),
        fetched_files=len(missing),
        fetched_bytes=_bytes(missing),
        seconds=time.monotonic() - began,
    )


def _require_place(store: Path, url: str, current: Manifest, manifest: Manifest, replace: bool) -> None:
    """Refuse a folder whose datastore must not, or cannot, be replaced by ``manifest``."""
    if is_live(store):
        raise InvalidArgument(f"{store} is a live datastore, whose documents a pull would lose; name a new folder")
    if not replace:
        require_replaceable(store, url, current)
    require_same_kind(str(store), current, manifest)
    require_no_clash(str(store), [current], manifest)


def _is_whole(folder: Path, entry: SegmentEntry, manifest: Manifest) -> bool:
    """Whether the segment is in ``folder``. Files got their names after their checksums were verified."""
    if not (folder / entry.name).is_file():
        return False
    try:
        open_segment(folder, entry, manifest)
    except Corruption:
        return False
    return True


def _require_disk(folder: Path, missing: Sequence[SegmentEntry]) -> None:
    """Refuse a pull that does not fit on the disk.

    Raises:
        ResourceExhausted: too little space is free.
    """
    needed = sum(entry.bytes - fetched_bytes(folder, entry) for entry in missing)
    free = shutil.disk_usage(folder).free - FREE_BYTES
    if needed > free:
        raise ResourceExhausted(
            f"{folder.parent}: the pull needs {megabytes(needed)} of disk, and {megabytes(max(0, free))} may be used; free space, "
            "or choose another folder"
        )


def _bytes(entries: Sequence[SegmentEntry]) -> int:
    return sum(entry.bytes for entry in entries)
