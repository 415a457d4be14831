"""Builds a datastore at a URL: on disk with a push at the end, or on a cluster that sends segments when they are made."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from suffolk.build_index.builder import build
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.pool import on_ray
from suffolk.build_index.progress import WorkProgress
from suffolk.build_index.report import BuildReport, count
from suffolk.build_index.target import find_target
from suffolk.build_index.workspace import Workspace
from suffolk.datastore.errors import Corruption, InvalidArgument, SuffolkError, Unavailable
from suffolk.datastore.files import write_atomically
from suffolk.datastore.manifest import (
    MANIFEST_NAME,
    SEGMENTS_NAME,
    TOKENIZER_PATTERN,
    Manifest,
    encode_manifest,
    read_manifest,
    tokenizer_name,
)
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.datastore.segment import SegmentEntry
from suffolk.serving.store.storage.fetch import fetch_tokenizer
from suffolk.serving.store.storage.generations import (
    generation_numbers,
    missing_segments,
    newest_number,
    prune,
    publish_generation,
    read_generation,
    require_empty,
    require_same_kind,
    same_content,
)
from suffolk.serving.store.storage.pull import pull
from suffolk.serving.store.storage.push import PushReport, push


class RemoteWorkspace(Workspace):
    """The unfinished work of a build at a URL. The disk holds the journal, and the manifest and tokenizer of the newest
    generation."""

    keeps_segments = False

    def __init__(self, store: Path, remote: RemoteFolder) -> None:
        super().__init__(store)
        self.remote = remote

    def take_newest(self) -> None:
        """Put manifest and tokenizer of the newest generation at the URL in the folder.

        Raises:
            InvalidArgument: the folder holds a datastore. Others as ``read_generation``.
        """
        segments = self.store / SEGMENTS_NAME
        if segments.is_dir() and any(segments.iterdir()):
            raise InvalidArgument(
                f"work folder {self.store}: holds a datastore, and the segments of this build go to {self.remote.url} alone; name "
                "a new folder"
            )
        self.store.mkdir(parents=True, exist_ok=True)
        self.forget()
        if numbers := generation_numbers(self.remote):
            manifest = read_generation(self.remote, numbers[-1])
            self._keep(manifest, fetch_tokenizer(self.remote, manifest))

    def forget(self) -> None:
        """Remove what ``take_newest`` put in the folder."""
        for path in (self.store / MANIFEST_NAME, *self.store.glob(TOKENIZER_PATTERN)):
            path.unlink(missing_ok=True)

    def has_segment(self, entry: SegmentEntry) -> bool:
        """Whether the whole segment is at the URL."""
        return self._sizes.get(entry.name) == entry.bytes

    def require_whole(self, manifest: Manifest) -> None:
        """See ``Workspace``. Only the sizes of files at a URL are compared."""
        if missing := missing_segments(self.remote, manifest):
            raise Corruption(
                f"{self.remote.place(SEGMENTS_NAME)}/{missing[0].name} is missing or not whole; push the datastore again from a "
                "whole copy"
            )

    def publish(self, manifest: Manifest, tokenizer_json: str | None) -> None:
        """Make ``manifest`` the newest generation at the URL.

        Raises:
            Unavailable: another process published a generation since this build began, or removed segments.
        """
        newest = max(generation_numbers(self.remote), default=0)
        if newest != manifest.generation - 1:
            raise Unavailable(
                f"{self.remote.url}: another process published generation {newest} since this build began; run the command again "
                "to publish yours after it"
            )
        self._require_sent(manifest)
        self._keep(manifest, tokenizer_json)
        for path in self.store.glob(TOKENIZER_PATTERN):
            if self.remote.sizes().get(path.name) != path.stat().st_size:
                self.remote.upload(path, path.name, lambda size: None)
        publish_generation(self.remote, manifest, manifest.generation)
        self._require_sent(manifest)  # a push that ended meanwhile may have removed segments

    def finish(self, manifest: Manifest) -> None:
        """Remove the journal."""
        self.discard()

    @cached_property
    def _sizes(self) -> dict[str, int]:
        return self.remote.sizes(SEGMENTS_NAME)

    def _require_sent(self, manifest: Manifest) -> None:
        if missing := missing_segments(self.remote, manifest):
            raise Unavailable(
                f"{self.remote.place(SEGMENTS_NAME)}: another process removed {count(len(missing), 'segment')} of this build; run "
                "the command again to make them again"
            )

    def _keep(self, manifest: Manifest, tokenizer_json: str | None) -> None:
        write_atomically(self.store / MANIFEST_NAME, encode_manifest(manifest))
        if manifest.tokenizer is not None and tokenizer_json is not None:
            write_atomically(self.store / tokenizer_name(manifest.tokenizer), tokenizer_json.encode())


def build_at(
    url: str, options: BuildOptions, folder: Path | None, keep: int, progress: WorkProgress, ray: str | None = None
) -> tuple[BuildReport, PushReport]:
    """Build the datastore at ``url``. Readers there see the old generation until the end.

    Without ``ray``, it is built in ``folder`` and pushed. To append, the datastore at ``url`` is pulled first. With ``ray``, the
    nodes of that cluster send the segments, and ``folder`` gets no segments.

    Returns the reports of build and push. In the build's report, the store is ``url``, and the generation is the number there.

    Args:
        options: settings of the build; ``output`` is not used.
        folder: None: a temporary one. The folder stays if a further call needs it; the error then says how to go on.
        keep: as in ``push``.
        ray: the address of a cluster, as in ``on_ray``.

    Raises:
        InvalidArgument: there is a datastore at ``url``, and the mode is "new"; or there are other files.
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
    """After an error, remove a temporary folder if it has no finished segment. Otherwise the error says how to go on there."""
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
    """The same as ``push``, but its errors and Ctrl-C say how to go on."""
    try:
        return push(work, url, keep, progress)
    except (SuffolkError, KeyboardInterrupt) as error:
        raise _with_advice(
            error, f"the datastore is complete in {work}; 'suffolk push {work} {url}' sends it"
        ) from error


def _with_advice(error: SuffolkError | KeyboardInterrupt, advice: str) -> SuffolkError | KeyboardInterrupt:
    """``error`` with ``advice`` added."""
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt(f"before the end; {advice}")
    return type(error)(f"{error}; {advice}")
