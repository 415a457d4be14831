"""Splits a datastore into shards for several servers. A shard is a datastore with a part of the segments."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from suffolk.build_index.report import count
from suffolk.build_index.workspace import appearing_folder, check_new_folder
from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.manifest import (
    LOCK_NAME,
    SEGMENTS_NAME,
    Manifest,
    publish,
    read_manifest,
    tokenizer_name,
    writer_lock,
)
from suffolk.datastore.segment import SegmentEntry

MAX_SHARDS = 64


@dataclass(frozen=True, slots=True)
class ShardReport:
    """One shard: its folder, its numbers of segments, documents and tokens, and the bytes of its segments."""

    path: str
    segments: int
    documents: int
    tokens: int
    bytes: int


def split(store: str | Path, output: str | Path, shards: int) -> list[ShardReport]:
    """Split ``store`` into ``output``/shard-0 to shard-N. The new folder ``output`` appears whole, or not at all.

    Each segment is linked into one shard, so no text is copied or sorted again. The counts of all shards add up to the counts of
    ``store``, because counts are sums over segments. Shards have about the same number of tokens.

    Raises:
        NotFound, Corruption: there is no datastore, or it is damaged.
        InvalidArgument: ``output`` exists, is inside ``store`` or is on another file system, ``shards`` is out of 1..64, there are
            fewer segments than shards, or documents are deleted.
        Unavailable: another process writes to ``store``.
        ResourceExhausted, PermissionDenied: ``output`` cannot be written.
    """
    source, target = Path(store), Path(output)
    check_range("shards", shards, 1, MAX_SHARDS)
    check_new_folder(target, source)
    read_manifest(source)
    with writer_lock(source):
        manifest = read_manifest(source)
        parts = _parts(source, manifest, shards)
        with appearing_folder(target) as work:
            for number, part in enumerate(parts):
                _make_shard(source, work / f"shard-{number}", manifest, part)
    return [_report(target / f"shard-{number}", part) for number, part in enumerate(parts)]


def _parts(source: Path, manifest: Manifest, shards: int) -> list[list[SegmentEntry]]:
    """Assign segments to shards. The largest remaining segment goes to the shard with the fewest tokens."""
    if manifest.deletions:
        raise InvalidArgument(f"{source} has deleted documents; run 'suffolk compact {source}' before")
    if len(manifest.segments) < shards:
        raise InvalidArgument(
            f"{source} has {count(len(manifest.segments), 'segment')} for {shards} shards; lower --shards, or build "
            "it with a smaller --segment-tokens"
        )
    parts: list[list[SegmentEntry]] = [[] for _ in range(shards)]
    for entry in sorted(manifest.segments, key=lambda entry: -entry.tokens):
        min(parts, key=lambda part: (sum(each.tokens for each in part), len(part))).append(entry)
    return parts


def _make_shard(source: Path, shard: Path, manifest: Manifest, part: Sequence[SegmentEntry]) -> None:
    (shard / SEGMENTS_NAME).mkdir(parents=True)
    for entry in part:
        try:
            os.link(source / SEGMENTS_NAME / entry.name, shard / SEGMENTS_NAME / entry.name)
        except OSError as error:
            raise InvalidArgument(
                f"{source / SEGMENTS_NAME / entry.name} cannot be linked to {shard.parent} ({error.strerror}); name a folder "
                "on the same file system"
            ) from error
    if manifest.tokenizer is not None and (source / tokenizer_name(manifest.tokenizer)).is_file():
        shutil.copyfile(source / tokenizer_name(manifest.tokenizer), shard / tokenizer_name(manifest.tokenizer))
    (shard / LOCK_NAME).touch()
    publish(shard, replace(manifest, segments=tuple(part), live_sequence=0))


def _report(path: Path, part: Sequence[SegmentEntry]) -> ShardReport:
    return ShardReport(
        str(path),
        len(part),
        sum(entry.documents for entry in part),
        sum(entry.tokens for entry in part),
        sum(entry.bytes for entry in part),
    )
