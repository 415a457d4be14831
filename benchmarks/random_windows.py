"""Contexts from random places of a datastore that may not fit into memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from suffolk.datastore import _native
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest


def random_windows(store: Path, manifest: Manifest, count: int, length: int, seed: int) -> list[list[int]]:
    """Windows of at most ``length`` tokens that end at random tokens of the documents. They are read one by one."""
    chooser = np.random.default_rng(seed)
    segments = [_native.Segment(str(store / SEGMENTS_NAME / entry.name)) for entry in manifest.segments]
    sizes = [entry.tokens + entry.documents for entry in manifest.segments]
    windows = []
    for number in chooser.choice(len(segments), count, p=np.array(sizes) / sum(sizes)).tolist():
        position = int(chooser.integers(sizes[number]))
        begin, _ = segments[number].document_range(segments[number].document_at(position))
        start = max(begin, position - length)
        windows.append(segments[number].read_tokens(start, position - start).tolist())
    return windows
