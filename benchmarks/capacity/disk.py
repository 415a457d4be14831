"""Measures the disk reads of a search whose pages are not in memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.benchmarks.capacity.search import MAX_MATCH
from suffolk.benchmarks.memory import limited_process
from suffolk.benchmarks.memory.page_cache import random_read_seconds
from suffolk.benchmarks.watched_process import run_watched
from suffolk.datastore.datastore import Datastore
from suffolk.datastore.json_file import write_json
from suffolk.datastore.manifest import SEGMENTS_NAME

READS, CONTEXTS = 1000, 200


@dataclass(frozen=True, slots=True)
class DiskCosts:
    """Disk reads of a context in a segment, and median seconds of a random read of 4 KiB (0: there are no direct reads)."""

    reads: float
    read_s: float


def measure_disk(store: Datastore, workdir: Path, contexts: Sequence[Any], max_nodes: int) -> DiskCosts:
    """Ask for drafts from files that were dropped from memory. Files that another process maps stay in memory."""
    file = workdir / "contexts.json"
    write_json(file, contexts[:CONTEXTS])
    settings = {
        "store": str(store.path), "residency": "mmap", "limit_bytes": None, "contexts": str(file), "rounds": 1,
        "max_match": MAX_MATCH, "min_match": 1, "max_nodes": max_nodes, "seed": 0,
    }  # fmt: skip
    watched = run_watched([sys.executable, "-m", limited_process.__name__, json.dumps(settings)])
    segments = store.manifest.segments
    largest = max(segments, key=lambda entry: entry.bytes)
    seconds = random_read_seconds(store.path / SEGMENTS_NAME / largest.name, READS, 0)
    reads = json.loads(watched.output)["cold"]["major_faults_per_call"] / len(segments)
    return DiskCosts(reads, float(np.median(seconds)) if seconds else 0.0)
