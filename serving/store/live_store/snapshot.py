"""Copies a datastore while it is served: one generation, and every append that was acknowledged before the call."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from suffolk.build_index.workspace import appearing_folder, check_new_folder
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import Corruption, InvalidArgument, Unavailable, damaged
from suffolk.datastore.files import fsync_directory, require_place_here
from suffolk.datastore.manifest import (
    LOCK_NAME,
    MANIFEST_NAME,
    SEGMENTS_NAME,
    read_manifest,
    tokenizer_name,
    writer_lock,
)
from suffolk.serving.store.live_store.identity import IDENTITY_NAME, LIVE_NAME, log_folder, open_identity, published

LOCK_SECONDS = 60.0
"""How long a snapshot waits while another process publishes."""
_RETRY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """The outcome of a snapshot.

    Attributes:
        store, output: the folders.
        generation: number of the copied generation; 0 if none is published.
        files, bytes: number and size of the files.
        log_bytes: the part of ``bytes`` that is the log of unpublished changes.
        seconds: wall time.
    """

    store: str
    output: str
    generation: int
    files: int
    bytes: int
    log_bytes: int
    seconds: float


def snapshot(store: str | Path, output: str | Path, link: bool = False, wait: float = LOCK_SECONDS) -> SnapshotReport:
    """Copy ``store`` to the new folder ``output``, which appears whole and on disk, or not at all.

    The copy holds the published generation and every append that was acknowledged before the call. It is a datastore like any
    other: serve it to restore it. Processes that serve or append to ``store`` go on.

    Args:
        link: link segment files instead of copying them. Both folders must be on one file system. Linked files share their
            bytes on disk, so this is no backup against a failing disk.
        wait: seconds to wait while another process publishes a generation.

    Raises:
        NotFound: there is no datastore.
        Corruption: a file is missing or truncated.
        InvalidArgument: ``output`` exists, is inside ``store``, or cannot be linked to.
        Unavailable: another process publishes for longer than ``wait``.
        ResourceExhausted, PermissionDenied: the disk is full, or ``output`` cannot be written.
    """
    require_place_here(output, "output")
    source, target, began = Path(store), Path(output), time.monotonic()
    check_new_folder(target, source)
    if not (source / LIVE_NAME / IDENTITY_NAME).is_file():
        read_manifest(source)  # raises NotFound: no datastore
    with appearing_folder(target) as work:
        with ExitStack() as files:
            generation = _copy_all(source, work, link, wait, files)
        return _report(source, target, work, generation, began)


def _copy_all(source: Path, work: Path, link: bool, wait: float, files: ExitStack) -> int:
    """Copy everything to ``work``. Returns the generation.

    All files are opened while no other process can publish. Opened files stay readable after they are removed.
    """
    opened: dict[Path, BinaryIO] = {}
    with _lock(source, wait):
        manifest = published(source)
        if manifest is not None:
            open_datastore(source).close()  # checks headers and sizes
        names = [MANIFEST_NAME] if manifest is not None else []
        live = (source / LIVE_NAME / IDENTITY_NAME).is_file()
        mark = manifest.tokenizer if manifest is not None else open_identity(source).tokenizer
        names += [tokenizer_name(mark)] if mark is not None and (source / tokenizer_name(mark)).is_file() else []
        names += [f"{LIVE_NAME}/{IDENTITY_NAME}"] if live else []
        segments = [f"{SEGMENTS_NAME}/{entry.name}" for entry in manifest.files()] if manifest is not None else []
        for name in segments if link else ():
            _link(source / name, work / name)
        for name in [*names, *(() if link else segments)]:
            opened[Path(name)] = _open(source / name, files)
        if live:
            folder = log_folder(source)
            for path, file in _open_log(folder, files).items():
                opened[path.relative_to(source)] = file
            (work / folder.relative_to(source)).mkdir(parents=True)
    for path, file in opened.items():
        _copy(file, work / path)
    if live:
        os.chmod(work / LIVE_NAME / IDENTITY_NAME, 0o600)
    (work / LOCK_NAME).touch()
    for folder in sorted({work, *(path.parent for path in work.rglob("*"))}):
        fsync_directory(folder)
    return manifest.generation if manifest is not None else 0


def _open_log(folder: Path, files: ExitStack) -> dict[Path, BinaryIO]:
    """The files of a log, opened at one moment. Later changes of the log change only the end of the last file."""
    while True:
        before = sorted(folder.iterdir())
        try:
            opened = {path: _open(path, files) for path in before if path.suffix != ".tmp"}
        except Corruption:  # removed since it was listed
            continue
        if sorted(folder.iterdir()) == before:
            return opened


def _open(path: Path, files: ExitStack) -> BinaryIO:
    try:
        return files.enter_context(open(path, "rb"))  # noqa: SIM115  the stack closes it
    except FileNotFoundError as error:
        raise damaged(path, "is missing") from error


@contextmanager
def _lock(store: Path, wait: float) -> Iterator[None]:
    """The writer lock; a flush holds it for as long as it writes a segment."""
    deadline = time.monotonic() + wait
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(writer_lock(store, only_reads=True))
                break
            except Unavailable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
        yield


def _copy(source: BinaryIO, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb") as file:
        shutil.copyfileobj(source, file, 1 << 22)
        file.flush()
        os.fsync(file.fileno())


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        raise InvalidArgument(
            f"{source} cannot be linked to {target.parent} ({error.strerror}); leave --link out"
        ) from error


def _report(source: Path, target: Path, work: Path, generation: int, began: float) -> SnapshotReport:
    sizes = {path: path.stat().st_size for path in work.rglob("*") if path.is_file()}
    log_bytes = sum(size for path, size in sizes.items() if log_folder(work) in path.parents)
    total = sum(sizes.values())
    return SnapshotReport(str(source), str(target), generation, len(sizes), total, log_bytes, time.monotonic() - began)
