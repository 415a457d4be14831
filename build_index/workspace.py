"""Keeps the unfinished work of a build in the folder ``build/`` of a datastore: a journal and finished segments."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from suffolk.datastore.errors import (
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    SuffolkError,
    Unavailable,
)
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.files import fsync_directory, refuse_dangling, write_atomically
from suffolk.datastore.manifest import (
    LOCK_NAME,
    MANIFEST_NAME,
    SEGMENTS_NAME,
    TOKENIZER_PATTERN,
    Manifest,
    publish,
    read_manifest,
    tokenizer_name,
    writer_lock,
)
from suffolk.datastore.open_segment import open_segment
from suffolk.datastore.segment import SegmentEntry

BUILD_NAME = "build"
BUILD_NAMES = (LOCK_NAME, SEGMENTS_NAME, BUILD_NAME, f"{MANIFEST_NAME}.tmp", f"{TOKENIZER_PATTERN}*")
"""Names that an unfinished build may leave in the folder of a datastore."""
JOURNAL_NAME = "journal.jsonl"
SEGMENT_SUFFIX = ".segment"


class Workspace:
    """The files of one datastore under construction. Made by ``open_workspace``, which holds the writer lock.

    Attributes:
        keeps_segments: whether finished segments are kept in this folder. False if they are sent elsewhere.
    """

    keeps_segments = True

    def __init__(self, store: Path) -> None:
        self.store = store
        self.folder = store / BUILD_NAME
        self.journal = self.folder / JOURNAL_NAME
        self.tokens = self.folder / "tokens"

    def clear(self) -> None:
        """Remove all unfinished work, and make empty folders."""
        self.discard()
        failpoint("clear.removed")
        (self.folder / SEGMENTS_NAME).mkdir(parents=True)
        failpoint("clear.made")
        (self.store / SEGMENTS_NAME).mkdir(exist_ok=True)

    def discard(self) -> None:
        """Remove all unfinished work."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def segment_name(generation: int, number: int, live_time: int | None = None) -> str:
        """The name of segment ``number`` of ``generation`` until ``name_by_content``.

        Args:
            live_time: see ``SegmentEntry.live_time``.
        """
        live = "" if live_time is None else f"-live{live_time}"
        return f"g{generation:06d}-{number:05d}{live}{SEGMENT_SUFFIX}"

    def new_segment(self, name: str) -> Path:
        """The path of a segment before it is published."""
        return self.folder / SEGMENTS_NAME / name

    def name_by_content(self, entry: SegmentEntry) -> SegmentEntry:
        """Rename the file of a new segment as ``named_by_content`` says."""
        named = named_by_content(entry)
        os.rename(self.new_segment(entry.name), self.new_segment(named.name))
        return named

    def has_segment(self, entry: SegmentEntry) -> bool:
        """Whether the complete file of a segment exists, published or not."""
        places = (self.new_segment(entry.name), self.store / SEGMENTS_NAME / entry.name)
        return any(place.is_file() and place.stat().st_size == entry.bytes for place in places)

    def require_whole(self, manifest: Manifest) -> None:
        """Refuse to add to a generation with missing or changed files. Checksums are not compared.

        Raises:
            Corruption: a file is missing, or differs from what ``manifest`` lists.
        """
        for entry in manifest.files():
            open_segment(self.store / SEGMENTS_NAME, entry, manifest)

    def publish(self, manifest: Manifest, tokenizer_json: str | None) -> None:
        """Make ``manifest`` the datastore's generation. A crash at any point leaves the old generation or the new one."""
        if tokenizer_json is not None and manifest.tokenizer is not None:
            write_atomically(self.store / tokenizer_name(manifest.tokenizer), tokenizer_json.encode())
        moved = [entry.name for entry in manifest.files() if self.new_segment(entry.name).exists()]
        for name in moved:
            os.rename(self.new_segment(name), self.store / SEGMENTS_NAME / name)
            failpoint("publish.moved")
        try:
            publish(self.store, manifest)
        except SuffolkError:
            if self.live_generation() != manifest.generation:  # if equal, publishing worked and only the sync failed
                for name in moved:  # the disk may be full: move finished segments back, so the next run can resume
                    os.rename(self.store / SEGMENTS_NAME / name, self.new_segment(name))
            raise

    def publish_change(self, make: Callable[[], Manifest]) -> Manifest:
        """Publish the generation that ``make`` builds here. On failure, all files of that generation are removed."""
        self.clear()
        try:
            manifest = make()
            self.publish(manifest, None)
        except BaseException:
            self.discard()
            raise
        self.finish(manifest)
        return manifest

    def live_generation(self) -> int:
        """The number of the published generation; 0 if there is none.

        Raises:
            Corruption, PermissionDenied, Unsupported: as ``read_manifest``.
        """
        try:
            return read_manifest(self.store).generation
        except NotFound:
            return 0

    def finish(self, manifest: Manifest) -> None:
        """Remove files that the published generation does not need: unlisted segments, other tokenizers, the work folder.

        Readers of an older generation can still read its removed segments.
        """
        # Before this sync, a power cut may restore the old manifest, which needs the old segments.
        fsync_directory(self.store)
        listed = {entry.name for entry in manifest.files()}
        if manifest.tokenizer is not None:
            listed.add(tokenizer_name(manifest.tokenizer))
        segments = (self.store / SEGMENTS_NAME).glob(f"g*{SEGMENT_SUFFIX}")
        for path in (*segments, *self.store.glob(f"{TOKENIZER_PATTERN}*")):
            if path.name not in listed:
                path.unlink(missing_ok=True)
                failpoint("finish.removed")
        failpoint("finish.unlisted")
        self.discard()

    def refuse_unfinished(self, afterwards: str) -> None:
        """Refuse to publish while an interrupted build waits in this folder. The build would use the same generation number.

        Raises:
            Unavailable: an interrupted build waits in this folder. ``afterwards``: the last step that the message advises.
        """
        if self.holds_work() and not self._is_published():
            raise Unavailable(
                f"{self.folder} holds an interrupted build; finish it with the command that began it, or remove that folder; "
                f"then {afterwards}"
            )

    def holds_work(self) -> bool:
        """Whether the journal lists a finished segment."""
        return any("entry" in line for line in self.journal_lines())

    def _is_published(self) -> bool:
        """Whether the journal's build is published. Then the only work left is to remove files."""
        generation = self.journal_lines()[0].get("settings", {}).get("generation")
        return generation is not None and int(generation) <= self.live_generation()

    def journal_lines(self) -> list[dict[str, Any]]:
        """The lines of the journal up to the first one torn by a crash; empty without a journal."""
        lines: list[dict[str, Any]] = []
        if not self.journal.is_file():
            return lines
        for line in self.journal.read_bytes().split(b"\n")[:-1]:
            try:
                lines.append(json.loads(line))
            except ValueError:
                break
        return lines


def named_by_content(entry: SegmentEntry) -> SegmentEntry:
    """Add the checksum of a new segment to its name. So files of the same name have the same bytes in all copies and rebuilds."""
    return replace(entry, name=f"{entry.name.removesuffix(SEGMENT_SUFFIX)}-{entry.checksum}{SEGMENT_SUFFIX}")


@contextmanager
def open_workspace(
    store: Path, allowed: Sequence[str] = (), make: Callable[[Path], Workspace] = Workspace
) -> Iterator[Workspace]:
    """Yield the workspace of ``store`` under the writer lock. ``make`` returns the workspace.

    A folder without a manifest may hold only the names in ``allowed`` and the files of an unfinished build. If the build fails
    before a segment is finished, all its files are removed, including a new lock.

    Raises:
        Unavailable: another process writes to the datastore.
        PermissionDenied, InvalidArgument: the folder cannot be made or is a file.
    """
    created = _make(store)
    fresh = not (store / LOCK_NAME).exists()
    failpoint("workspace.made")
    _refuse_foreign(store, allowed)
    with writer_lock(store):
        workspace = make(store)
        try:
            yield workspace
        except BaseException:
            if workspace.folder.exists() and not workspace.holds_work():
                workspace.discard()
            raise
        finally:
            if fresh:  # before the lock is released, because only its holder may remove files
                _remove_empty(store, created)


def check_new_folder(output: Path, store: Path) -> None:
    """Refuse an ``output`` that exists or is inside ``store``. Raises InvalidArgument."""
    refuse_dangling(output)
    if output.exists():
        raise InvalidArgument(f"{output} exists; name a new folder")
    if store.resolve() in output.resolve().parents:
        raise InvalidArgument(f"{output} is inside the datastore {store}; name a folder outside of it")


@contextmanager
def appearing_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``target``. At the end it is synced and renamed to ``target``. After an error it is removed.

    Raises ResourceExhausted, PermissionDenied or InvalidArgument if it cannot be written.
    """
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            yield work
            os.chmod(work, 0o755)
            fsync_directory(work)
            os.rename(work, target)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    fsync_directory(target.parent)


@contextmanager
def disk_errors(path: Path, choice: str = "folder") -> Iterator[None]:
    """Turn the error of a write to ``path`` into Suffolk's. ``choice``: what the user can choose another one of."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ResourceExhausted(f"{path}: the disk is full; free some space and run the command again") from error
        kind = PermissionDenied if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else InvalidArgument
        raise kind(f"{path}: cannot be written ({error.strerror or error}); choose another {choice}") from error


def _make(store: Path) -> Path | None:
    """Make the folder ``store``. Returns the topmost folder that was made, or None."""
    refuse_dangling(store)
    if store.exists() and not store.is_dir():
        raise InvalidArgument(f"output {store} is a file; name a new or empty folder")
    missing = [folder for folder in (store, *store.parents) if not folder.exists()]
    with disk_errors(store):
        store.mkdir(parents=True, exist_ok=True)
    return missing[-1] if missing else None


def _refuse_foreign(store: Path, allowed: Sequence[str]) -> None:
    """Refuse a folder with files that belong to no datastore."""
    if not store.is_dir() or (store / MANIFEST_NAME).exists():
        return
    paths = list(store.iterdir())
    known = (*allowed, *BUILD_NAMES) if store / LOCK_NAME in paths else allowed  # a build creates its lock first
    foreign = sorted(path.name for path in paths if not any(path.match(name) for name in known))
    if foreign:
        raise InvalidArgument(f"output {store} holds {foreign[0]!r} and is no datastore; name a new or empty folder")


def _remove_empty(store: Path, created: Path | None) -> None:
    """Remove the lock and the folders that this build made, if they hold nothing else."""
    names = {entry.name for entry in store.iterdir()}
    if not names <= {LOCK_NAME, SEGMENTS_NAME} or any((store / SEGMENTS_NAME).glob("*")):
        return
    if (store / SEGMENTS_NAME).exists():
        (store / SEGMENTS_NAME).rmdir()
    (store / LOCK_NAME).unlink(missing_ok=True)  # last: with the lock, ``_refuse_foreign`` accepts the other files
    for folder in (store, *store.parents):
        if created is None or created not in (folder, *folder.parents):
            return
        with suppress(OSError):  # another build may have begun there
            folder.rmdir()
