"""Times drafts for ``research.draft_latency``, with the Suffolk of the checkout in PYTHONPATH.

It is run by its path, also with old checkouts, with one JSON object of settings as its argument.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

LIMITED_AT_ONCE = 8


def measure(settings: dict[str, Any]) -> dict[str, str]:
    """Save the seconds of each context's lookup and draft, and return the package's file and a digest of all answers."""
    import suffolk
    from suffolk.benchmarks.memory.page_cache import ResidentLimit, forget_files
    from suffolk.datastore.datastore import open_datastore
    from suffolk.datastore.manifest import SEGMENTS_NAME

    path = Path(settings["store"])
    contexts = json.loads(Path(settings["contexts"]).read_text())
    bounds = (16, settings["min_match"], 10, 64)
    files = sorted((path / SEGMENTS_NAME).iterdir())
    if settings["limit_bytes"] is not None:
        forget_files(files)
    with open_datastore(path, "mmap", threads=1) as store:
        limit = settings["limit_bytes"]
        bound = None if limit is None else ResidentLimit(files, limit, store.resident_bytes, settings["seed"])
        size = len(contexts) if bound is None else LIMITED_AT_ONCE
        store.clock(contexts, *bounds)  # the warm-up
        seconds = []
        for begin in range(0, len(contexts), size):
            if bound is not None:
                bound.enforce()
            seconds.append(store.clock(contexts[begin : begin + size], *bounds))
        answers = hashlib.sha256()
        for context in contexts:
            tree = store.draft(context, *bounds)
            assert tree.counts is not None
            for part in (tree.tokens, tree.parents, tree.counts):
                answers.update(part.tobytes())
    np.save(settings["output"], np.concatenate(seconds, axis=1))
    return {"package": str(suffolk.__file__), "digest": answers.hexdigest()}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
