"""The journal from which a build resumes after a crash: a JSON line of settings, then a line for each finished segment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from suffolk.build_index.block import Position
from suffolk.build_index.inputs import Inputs
from suffolk.build_index.proof import Proof
from suffolk.build_index.skipped import BuildCounts
from suffolk.build_index.workspace import Workspace, disk_errors
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.files import write_atomically
from suffolk.datastore.manifest import Manifest
from suffolk.datastore.segment import SegmentEntry

JOURNAL_FORMAT = 4
"""Grows whenever blocks are cut, tokenized or counted differently. Only a version with the same number resumes a build."""


@dataclass(frozen=True, slots=True)
class FinishedSegment:
    """A segment that is on disk.

    Attributes:
        entry: the segment's entry for the manifest.
        next: where reading continues after the segment.
        inputs: identity of the files up to ``next``. The segment is valid while these files are unchanged.
        counts: totals of the segment.
        skipped_bytes: size of the file of skipped records (``SkippedLog``) after the segment.
    """

    entry: SegmentEntry
    next: Position
    inputs: str
    counts: BuildCounts
    skipped_bytes: int


def totals(finished: Iterable[FinishedSegment]) -> BuildCounts:
    """The totals of all these segments."""
    counts = BuildCounts()
    for segment in finished:
        counts.add(segment.counts)
    return counts


@dataclass(frozen=True, slots=True)
class Journal:
    """The finished part of an earlier run of the same build. ``complete``: whether all segments are finished."""

    proof: Proof
    finished: tuple[FinishedSegment, ...]
    complete: bool


def write_journal(path: Path, settings: dict[str, Any], proof: Proof, finished: Sequence[FinishedSegment] = ()) -> None:
    """Replace the journal by one with these settings and finished segments."""
    header = {"format": JOURNAL_FORMAT, "settings": settings, "proof": asdict(proof)}
    write_atomically(path, b"".join(_line(record) for record in (header, *map(asdict, finished))))


def record_segment(path: Path, segment: FinishedSegment) -> None:
    """Add a finished segment. After this call returns, a crash does not lose the segment."""
    _append(path, asdict(segment))


def record_complete(path: Path, inputs: Inputs) -> None:
    """Record that all segments are finished. A later run then knows whether a crash came before or after publishing."""
    _append(path, {"complete": inputs.identity(len(inputs.files))})


def is_published(workspace: Workspace, settings: dict[str, Any], inputs: Inputs, manifest: Manifest) -> bool:
    """Whether an earlier run with these settings and inputs finished all segments, and ``manifest`` lists them."""
    records = workspace.journal_lines()
    listed = {entry.name for entry in manifest.segments}
    return (
        bool(records)
        and not _changed(records[0].get("settings", {}), settings)
        and records[-1].get("complete") == inputs.identity(len(inputs.files))
        and all(record["entry"]["name"] in listed for record in records if "entry" in record)
    )


def read_journal(workspace: Workspace, settings: dict[str, Any], inputs: Inputs) -> Journal | str | None:
    """The usable part of an earlier run. If no part is usable, the reason as a text. Without an earlier run, None.

    Segments are usable up to the first segment whose files changed. So corpora may be added behind the corpora already read.
    """
    records = workspace.journal_lines()
    if not records:
        return None
    header, *rest = records
    if header.get("format") != JOURNAL_FORMAT:
        return "another version of Suffolk began it"
    if changed := _changed(header["settings"], settings):
        return f"{', '.join(changed)} changed"
    finished: list[FinishedSegment] = []
    for record in rest:
        if "complete" in record:
            break
        segment = _segment(record)
        if reached(inputs, segment.next) != segment.inputs or not workspace.has_segment(segment.entry):
            break
        finished.append(segment)
    if rest and not finished:
        return "the input files changed"
    return Journal(Proof(**header["proof"]), tuple(finished), "complete" in records[-1])


def reached(inputs: Inputs, position: Position) -> str:
    """The identity of all files that are at least partly read at ``position``."""
    return inputs.identity(position.file + 1 if position.block else position.file)


def _changed(before: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """The settings that differ.

    The generation is not compared. Another process may have published one, and segments are named by their content.
    """
    names = (before.keys() | settings.keys()) - {"generation"}
    return sorted(name for name in names if before.get(name) != settings.get(name))


def _append(path: Path, record: dict[str, Any]) -> None:
    with disk_errors(path), open(path, "ab") as file:
        file.write(_line(record))
        file.flush()
        os.fsync(file.fileno())
    failpoint("journal.appended")


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _segment(record: dict[str, Any]) -> FinishedSegment:
    return FinishedSegment(
        SegmentEntry(**record["entry"]),
        Position(*record["next"]),
        record["inputs"],
        BuildCounts(**record["counts"]),
        record["skipped_bytes"],
    )
