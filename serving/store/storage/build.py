"""Builds a datastore at a URL: on disk with a push at the end, or on a cluster that sends segments when they are made."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from suffolk.build_index.builder import build
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.pool import on_ray
from suffolk.build_index.progress import WorkProgress
from suffolk.build_index.report import BuildReport
from suffolk.build_index.target import find_target
from suffolk.build_index.workspace import Workspace
from suffolk.datastore.errors import InvalidArgument, SuffolkError
from suffolk.datastore.manifest import MANIFEST_NAME, read_manifest
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.serving.store.storage.generations import (
    generation_numbers,
    newest_number,
    prune,
    read_generation,
    require_empty,
    require_same_kind,
    same_content,
)
from suffolk.serving.store.storage.pull import pull
from suffolk.serving.store.storage.push import PushReport, push
from suffolk.serving.store.storage.remote_workspace import RemoteWorkspace


def build_at(
    url: str, options: BuildOptions, folder: Path | None, keep: int, progress: WorkProgress, ray: str | None = None
) -> tuple[BuildReport, PushReport]:
    """Build the datastore at ``url``. Readers there see the old generation until the end.

    Without ``ray``, it is built in ``folder`` and pushed. To append, the datastore at ``url`` is pulled first. With ``ray``, the
    nodes of that cluster send the segments, and ``folder`` has the journal alone.

    Returns the reports of build and push. In the build's report, the store is ``url``, and the generation is the number there.

    Args:
        options: settings of the build; ``output`` is not used.
        folder: None: a temporary one. It stays if a further call needs it; the error says how to go on.
        keep: as in ``push``.
        ray: the address of a cluster, as in ``on_ray``.

    Raises:
        InvalidArgument: there is a datastore at ``url``, and the mode is "new"; or other files.
        Unsupported: the datastore at ``url`` has another tokenizer, vocabulary or order depth. Others as ``build``, ``pull`` and
            ``push``.
    """
    remote = RemoteFolder(url)
    _require_place(remote, options)
    work = folder or Path(tempfile.mkdtemp(prefix="suffolk-build-")) / "store"
    here = replace(options, output=work)
    with _removed_if_useless(work, folder is None):
        if ray is None:
            report = _build_here(remote, here, progress)
        else:
            report = _build_there(remote, here, progress, ray)
            pushed = _sent(remote, report, keep)
    if ray is None:
        pushed = _push(work, url, keep, progress)
    if folder is None:
        shutil.rmtree(work.parent)
        pushed = replace(pushed, store="")
    return replace(report, store=url, generation=pushed.generation), pushed


def _require_place(remote: RemoteFolder, options: BuildOptions) -> None:
    """Refuse a build that could not be published."""
    numbers = generation_numbers(remote)
    if not numbers:
        require_empty(remote)
    if not numbers and options.mode == "append":
        newest_number(remote)  # raises NotFound
    if numbers and options.mode == "new":
        raise InvalidArgument(
            f"{remote.url}: holds a datastore already; give --append to add to it, --replace to put a new one in its place, or "
            "another --output"
        )
    if numbers and options.mode == "replace":
        there, target = read_generation(remote, numbers[-1]), find_target(options)
        given = replace(
            there, tokenizer=target.fingerprint, vocab_size=target.vocab_size, order_depth=target.order_depth
        )
        require_same_kind(remote.url, there, given)


@contextmanager
def _removed_if_useless(work: Path, temporary: bool) -> Iterator[None]:
    """After an error, remove a temporary folder without a finished segment. Otherwise the error says how to go on there."""
    try:
        yield
    except BaseException as error:
        if temporary and not Workspace(work).holds_work():
            shutil.rmtree(work.parent)
        elif temporary and isinstance(error, (SuffolkError, KeyboardInterrupt)):
            raise _with_advice(error, f"add --work-folder {work} to go on after the finished segments") from error
        raise


def _build_here(remote: RemoteFolder, options: BuildOptions, progress: WorkProgress) -> BuildReport:
    """Build on the disk of this machine."""
    work = options.output
    if options.mode == "append" and not _is_interrupted_append(work, remote):
        pull(remote.url, work, progress=progress)
    exists = (work / MANIFEST_NAME).exists()
    mode = options.mode if exists or options.mode != "replace" else "new"
    return build(replace(options, mode=mode), progress)


def _is_interrupted_append(work: Path, remote: RemoteFolder) -> bool:
    """Whether an interrupted build in ``work`` adds to the newest generation at ``remote``."""
    if not Workspace(work).holds_work() or not (work / MANIFEST_NAME).exists():
        return False
    return same_content(read_manifest(work), read_generation(remote, newest_number(remote)))


def _build_there(remote: RemoteFolder, options: BuildOptions, progress: WorkProgress, ray: str) -> BuildReport:
    """Build on a cluster, whose nodes send the segments."""
    workspace = RemoteWorkspace(options.output, remote)
    workspace.take_newest()
    try:
        return build(options, progress, on_ray(ray, remote.url), lambda store: workspace)
    finally:
        if not workspace.holds_work():
            workspace.forget()


def _sent(remote: RemoteFolder, report: BuildReport, keep: int) -> PushReport:
    """Remove old generations after ``_build_there``. Returns the report of a push that sent all new segments."""
    files = read_generation(remote, report.generation).files()
    return PushReport(
        store="",
        url=remote.url,
        generation=report.generation,
        published=True,
        segments=len(files),
        bytes=sum(entry.bytes for entry in files),
        sent_files=report.segments,
        sent_bytes=report.store_bytes,
        removed_files=prune(remote, keep),
        seconds=0.0,
    )


def _push(work: Path, url: str, keep: int, progress: WorkProgress) -> PushReport:
    """As ``push``. Its errors and Ctrl-C say how to go on."""
    try:
        return push(work, url, keep, progress)
    except (SuffolkError, KeyboardInterrupt) as error:
        raise _with_advice(
            error, f"the datastore is complete in {work}; 'suffolk push {work} {url}' sends it"
        ) from error


def _with_advice(error: SuffolkError | KeyboardInterrupt, advice: str) -> SuffolkError | KeyboardInterrupt:
    """The same error, with what to do."""
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt(f"before the end; {advice}")
    return type(error)(f"{error}; {advice}")
