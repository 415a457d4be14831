"""Creates folders and files of results, and copies of a datastore's first tokens."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.documents import DocumentTableWriter
from suffolk.datastore.errors import NotFound, ResourceExhausted
from suffolk.datastore.manifest import SEGMENTS_NAME, publish
from suffolk.datastore.segment import separator, token_dtype, write_segment


def make_folder(path: Path) -> Path:
    """Create ``path`` and the folders above it; returns ``path``.

    Raises:
        ResourceExhausted: the folder cannot be created.
    """
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def new_folder(within: Path) -> Iterator[Path]:
    """Yield a new folder in ``within``. It is removed at the end, also after an error. ``within`` is created if it is missing.

    Raises:
        ResourceExhausted: the folder cannot be created.
    """
    with writing(within):
        within.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(prefix="suffolk-", dir=within)
    with made as name:
        yield Path(name)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` of a write into ResourceExhausted."""
    try:
        yield
    except OSError as error:
        raise ResourceExhausted(f"{path} cannot be written: {error.strerror}; choose another place") from error


def built_once(index: Path, facts: Path, store: Datastore, build: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Make ``index``, a file or folder over ``store``, by ``build``. Return the cost, which the file ``facts`` keeps.

    An index of the same generation is reused. Raises the errors of ``build``, and ResourceExhausted: the folder
    cannot be written.
    """
    checksums = [segment.checksum for segment in store.manifest.files()]
    with writing(facts):
        if index.exists() and facts.is_file():
            kept: dict[str, Any] = json.loads(facts.read_text())
            if kept["checksums"] == checksums:
                return kept | {"reused": True}
        facts.unlink(missing_ok=True)
    built = build() | {"checksums": checksums}
    with writing(facts):
        facts.write_text(json.dumps(built))
    return built | {"reused": False}


def first_tokens(store: Datastore, tokens: int, workdir: Path) -> Path:
    """Return a datastore in ``workdir`` with the first ``tokens`` tokens of ``store``. The last document is truncated.

    An existing copy is reused.
    """
    checksums = " ".join(entry.checksum for entry in store.manifest.files())
    path = workdir / f"first-{tokens}-{hashlib.sha256(checksums.encode()).hexdigest()[:16]}"
    try:
        with open_datastore(path):
            return path
    except NotFound:
        shutil.rmtree(path, ignore_errors=True)
    make_folder(path / SEGMENTS_NAME)
    manifest = store.manifest
    dtype = token_dtype(manifest.vocab_size)
    parts, sources, left = [], DocumentTableWriter(), tokens
    for document in store.documents():
        if left <= 0:
            break
        parts += [document.tokens[:left].astype(dtype), np.array([separator(dtype)], dtype)]
        sources.add(document.source or "", document.metadata)
        left -= len(document.tokens)
    entry = write_segment(
        path / SEGMENTS_NAME / "000000.seg",
        np.concatenate(parts),
        vocab_size=manifest.vocab_size,
        order_depth=manifest.order_depth,
        fingerprint=manifest.tokenizer,
        documents=sources.finish(),
    )
    if (tokenizer := store.tokenizer_path()) is not None:
        with writing(path):
            shutil.copyfile(tokenizer, path / tokenizer.name)
    publish(path, replace(manifest, generation=1, segments=(entry,), deletions=()))
    return path
