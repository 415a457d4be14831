"""The manifest lists the segments of one generation of a datastore. Publishing a generation replaces it.

A datastore is a folder: ``MANIFEST`` (JSON), ``segments/``, ``LOCK``, and the tokenizer if it was built with one.
Segment files never change, and their names are never reused. So a reader can keep the generation that it opened. The
manifest is replaced by one rename: a crash at any time leaves the old manifest or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

from suffolk.datastore.errors import (
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unavailable,
    Unsupported,
    damaged,
)
from suffolk.datastore.files import fsync_directory, write_atomically
from suffolk.datastore.segment import SegmentEntry
from suffolk.datastore.settings import Count, Within, check_fields, from_json

MANIFEST_NAME = "MANIFEST"
SEGMENTS_NAME = "segments"
TOKENIZER_PATTERN = "tokenizer-*.json"
LOCK_NAME = "LOCK"
FORMAT = 1
MAX_MANIFEST_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Manifest:
    """One generation of a datastore.

    Attributes:
        generation: number of the generation, from 1. Each published manifest has a higher number.
        segments: the live segments, which hold the documents, in the order in which they were built.
        vocab_size: all token ids are below it.
        order_depth: number of tokens by which suffixes are sorted: the smallest of all segments.
        tokenizer: fingerprint of the tokenizer (64 hex digits), None if unknown.
        created: time of publication, in ISO 8601, UTC.
        settings: facts about each build, for information only. An appending build keeps those of the earlier builds.
        deletions: deletion segments, with copies of the deleted documents of the live segments (datastore/open_segment.py).
        live_sequence: the last sequence number that a live store wrote to segments (serving/store/live_store); 0 if there is none.
            All documents up to this number are in the segments, except documents of groups and deleted documents.
    """

    generation: Count
    segments: Annotated[tuple[SegmentEntry, ...], Within(1)]
    vocab_size: Count
    order_depth: Count
    tokenizer: str | None
    created: str
    settings: dict[str, Any] = field(default_factory=dict)
    deletions: tuple[SegmentEntry, ...] = ()
    live_sequence: Annotated[int, Within(0)] = 0

    def files(self) -> tuple[SegmentEntry, ...]:
        """All segment files that this generation needs."""
        return (*self.segments, *self.deletions)

    def next(self, **changes: Any) -> Manifest:
        """The next generation, created now, with the fields in ``changes`` replaced."""
        return replace(self, generation=self.generation + 1, created=now(), **changes)


def now() -> str:
    """The time in ISO 8601, UTC, in seconds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def tokenizer_name(fingerprint: str) -> str:
    """The file name of the tokenizer with this fingerprint. Generations with different tokenizers use different files."""
    return TOKENIZER_PATTERN.replace("*", fingerprint[:16])


def read_manifest(store: Path) -> Manifest:
    """The manifest of a datastore.

    Raises:
        NotFound: there is no folder ``store``, or no datastore in it.
        Corruption: the manifest is damaged.
        Unsupported: a newer version wrote it.
        PermissionDenied: it cannot be read.
    """
    path = store / MANIFEST_NAME
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_MANIFEST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        if (store / "live").is_dir():
            raise NotFound(
                f"{store} has published nothing: all its documents are in {store / 'live'}; serve it with "
                f"'suffolk serve --live {store}', or open it for appending (append=True)"
            ) from error
        missing = "it is no folder" if store.exists() else "there is no such folder"
        lack = f"it has no {MANIFEST_NAME}" if store.is_dir() else missing
        raise NotFound(f"{store} is no datastore: {lack}; check the name, or build one with 'suffolk build'") from error
    except IsADirectoryError as error:
        raise damaged(path, "is a folder and no file") from error
    except OSError as error:
        raise PermissionDenied(
            f"{path} cannot be read: {error.strerror}; check the path and its permissions"
        ) from error
    return parse_manifest(path, raw)


def parse_manifest(place: object, raw: bytes) -> Manifest:
    """The manifest in the bytes ``raw``, which were read from ``place``.

    Raises:
        Corruption: the bytes are damaged.
        Unsupported: a newer version wrote the bytes.
    """
    if len(raw) > MAX_MANIFEST_BYTES:
        raise damaged(place, f"has more than {MAX_MANIFEST_BYTES} bytes")
    try:
        return _parse(place, json.loads(raw))
    except KeyError as error:
        raise damaged(place, f"is damaged: it lacks {error}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(place, f"is damaged: {error}") from error


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes that ``parse_manifest`` reads."""
    return json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1).encode()


def publish(store: Path, manifest: Manifest) -> None:
    """Make ``manifest`` the datastore's generation. Its segments must be on disk already.

    Raises:
        InvalidArgument: a segment file is missing or has another size.
        ResourceExhausted: the disk is full, or the manifest would be larger than readers allow.
        PermissionDenied: the folder cannot be written to.
    """
    for entry in manifest.files():
        path = store / SEGMENTS_NAME / entry.name
        if not path.is_file() or path.stat().st_size != entry.bytes:
            raise InvalidArgument(
                f"{path} is missing or does not have {entry.bytes} bytes; run the command again, or restore the file "
                "from a copy"
            )
    content = encode_manifest(manifest)
    if len(content) > MAX_MANIFEST_BYTES:  # readers refuse a larger manifest
        raise ResourceExhausted(
            f"{store / MANIFEST_NAME} would have {len(content)} bytes; the limit is {MAX_MANIFEST_BYTES}: make fewer segments "
            "(larger --segment-tokens, or 'suffolk compact' before), or build another datastore"
        )
    fsync_directory(store / SEGMENTS_NAME)
    write_atomically(store / MANIFEST_NAME, content)


@contextlib.contextmanager
def writer_lock(store: Path, held: str = "", only_reads: bool = False) -> Iterator[None]:
    """Context manager that lets one process at a time write to a datastore. The lock ends with the process.

    Args:
        held: the message if another process holds the lock; empty for a general message.
        only_reads: the caller writes nothing, and only excludes writers. Then a folder that is not writable may lack the lock's
            file.

    Raises:
        Unavailable: another process holds the lock.
        PermissionDenied: the folder cannot be written to.
    """
    path = store / LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if not only_reads or error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise PermissionDenied(f"{path} cannot be written: {error.strerror}; choose another folder") from error
        if not path.exists():
            yield
            return
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = held or f"another process is writing to {store}; wait for it to end, or stop it"
            raise Unavailable(message) from error
        yield
    finally:
        os.close(descriptor)


def _parse(place: object, data: Any) -> Manifest:
    if not isinstance(data, dict):
        raise TypeError("it is no JSON object")
    version = data["format"]
    if type(version) is not int:
        raise TypeError(f"its format is {version!r}")
    if version != FORMAT:
        raise Unsupported(
            f"{place}: manifest format {version}; this program reads format {FORMAT}: use a newer Suffolk"
        )
    if lacking := [name for name in ("settings", "deletions") if name not in data]:
        raise KeyError(lacking[0])  # without deletion segments, searches would find deleted text
    found = from_json(Manifest, {name: value for name, value in data.items() if name != "format"}, "the manifest")
    for entry in found.files():
        check_fields(entry, f" of {entry.name!r}")
        if not re.fullmatch(r"[^./\0][^/\0]*", entry.name):
            raise ValueError(f"segment name {entry.name!r}")
    check_fields(found)
    if found.tokenizer is not None and not re.fullmatch("[0-9a-f]{64}", found.tokenizer):
        raise ValueError(f"tokenizer is {found.tokenizer!r}, no fingerprint of 64 hex digits")
    if not isinstance(found.settings, dict):
        raise ValueError("settings are no object")
    if len({entry.name for entry in found.files()}) < len(found.files()):
        raise ValueError("it lists a segment twice")
    for size in ("tokens", "documents"):
        if sum(getattr(entry, size) for entry in found.deletions) > sum(getattr(each, size) for each in found.segments):
            raise ValueError(f"more {size} are deleted than there are")
    return found
