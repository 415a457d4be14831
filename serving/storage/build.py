"""Builds a datastore on disk, and pushes it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from suffolk.build_index.builder import build
from suffolk.build_index.here import make_segments_here
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.progress import WorkProgress
from suffolk.build_index.report import BuildReport
from suffolk.build_index.state import MakeSegments
from suffolk.build_index.target import find_target
from suffolk.datastore.errors import InvalidArgument, SuffolkError
from suffolk.datastore.manifest import MANIFEST_NAME
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.serving.storage.generations import generation_numbers, read_generation, require_same_kind
from suffolk.serving.storage.pull import pull
from suffolk.serving.storage.push import PushReport, push


def build_at(
    url: str,
    options: BuildOptions,
    folder: Path | None,
    keep: int,
    progress: WorkProgress,
    make_segments: MakeSegments = make_segments_here,
) -> tuple[BuildReport, PushReport]:
    """Build in ``folder``, and push to ``url``. To append, the datastore at ``url`` is pulled first.

    Returns the reports of both; the store of the first one is ``url``, and its generation the one there.

    Args:
        options: settings of the build; ``output`` is not used.
        folder: None: a temporary one. It stays if the build is done and the push fails.
        keep: as in ``push``. make_segments: as in ``build``.

    Raises:
        InvalidArgument: there is a datastore at ``url``, and the mode is "new".
        Unsupported: the datastore at ``url`` has another tokenizer, vocabulary or order depth. Others as ``build``, ``pull`` and
            ``push``.
    """
    _require_place(RemoteFolder(url), options)
    work = folder or Path(tempfile.mkdtemp(prefix="suffolk-build-")) / "store"
    try:
        if options.mode == "append":
            pull(url, work, progress=progress)
        exists = (work / MANIFEST_NAME).exists()
        mode = options.mode if exists or options.mode != "replace" else "new"
        report = build(replace(options, output=work, mode=mode), progress, make_segments)
    except BaseException:
        if folder is None:
            shutil.rmtree(work.parent)
        raise
    pushed = _push(work, url, keep, progress)
    if folder is None:
        shutil.rmtree(work.parent)
        pushed = replace(pushed, store="")
    return replace(report, store=url, generation=pushed.generation), pushed


def _require_place(remote: RemoteFolder, options: BuildOptions) -> None:
    """Refuse a push that would fail after the build."""
    numbers = generation_numbers(remote)
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


def _push(work: Path, url: str, keep: int, progress: WorkProgress) -> PushReport:
    """As ``push``. Its errors and Ctrl-C say how to go on."""
    further = f"the datastore is complete in {work}; 'suffolk push {work} {url}' sends it"
    try:
        return push(work, url, keep, progress)
    except SuffolkError as error:
        raise type(error)(f"{error}; {further}") from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"before the end; {further}") from None
