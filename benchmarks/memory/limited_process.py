"""Queries a datastore with a limit on its files' resident memory. Every limit is measured in a separate process."""

from __future__ import annotations

import hashlib
import json
import resource
import time
from pathlib import Path
from typing import Any

from suffolk.benchmarks.memory.page_cache import ResidentLimit, forget_files
from suffolk.benchmarks.processes import resident_memory
from suffolk.benchmarks.report import quantiles_us
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.manifest import SEGMENTS_NAME

ASKED_BETWEEN_LIMITS = 8
WARM_POLL_S = 0.05


def ask(settings: dict[str, Any]) -> dict[str, Any]:
    """Open the datastore, run all queries once (cold), then ``rounds`` more times (steady).

    Returns times, page faults, memory, and a digest of all answers.
    """
    path = Path(settings["store"])
    files = sorted((path / SEGMENTS_NAME).iterdir())
    contexts = json.loads(Path(settings["contexts"]).read_text())
    forget_files(files)
    begin = time.perf_counter()
    with open_datastore(path, settings["residency"], threads=1) as store:
        opened = time.perf_counter() - begin
        limit = settings["limit_bytes"]
        bound = None if limit is None else ResidentLimit(files, limit, store.resident_bytes, settings["seed"])
        cold, digest = _phase(store, contexts, 1, bound, settings)
        if settings["residency"] == "warm":
            _wait_until_warm(store)
        steady, again = _phase(store, contexts, settings["rounds"], bound, settings)
        return {
            "open_s": opened,
            "cold": cold,
            "steady": steady,
            "resident_bytes": store.resident_bytes(),
            "rss_file_bytes": resident_memory()["file"],
            "digest": digest,
            "digest_again": again,
        }


def _phase(
    store: Datastore, contexts: list[list[int]], rounds: int, bound: ResidentLimit | None, settings: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Return times and page faults of all calls, and a digest of the last round's answers."""
    if bound is not None:
        bound.enforce()
    seconds, lookups, major = [], [], 0
    for _ in range(rounds):
        answers = hashlib.sha256()
        for number, context in enumerate(contexts):
            before, begin = _major_faults(), time.perf_counter()
            match = store.lookup(context, settings["max_match"], settings["min_match"])
            lookups.append(time.perf_counter() - begin)
            tree = store.draft(context, settings["max_match"], settings["min_match"], 10, settings["max_nodes"])
            seconds.append(time.perf_counter() - begin)
            major += _major_faults() - before
            answers.update(repr((match, tree.tokens.tolist(), tree.parents.tolist(), tree.match_count)).encode())
            assert tree.counts is not None
            answers.update(tree.counts.tobytes())
            if bound is not None and number % ASKED_BETWEEN_LIMITS == 0:
                bound.enforce()
    times = {**quantiles_us(seconds), "lookup": quantiles_us(lookups)}
    return {**times, "major_faults_per_call": major / len(seconds)}, answers.hexdigest()


def _wait_until_warm(store: Datastore) -> None:
    """Wait until the read-ahead thread has finished."""
    before = -1
    while (now := store.resident_bytes() or 0) > before:
        before = now
        time.sleep(WARM_POLL_S)


def _major_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
