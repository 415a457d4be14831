"""Copies the first tokens of a datastore into a new datastore, for smaller measurements."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from suffolk.benchmarks.folder import make_folder, writing
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.documents import DocumentTableWriter
from suffolk.datastore.errors import NotFound
from suffolk.datastore.manifest import SEGMENTS_NAME, publish
from suffolk.datastore.segment import separator, token_dtype, write_segment


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
