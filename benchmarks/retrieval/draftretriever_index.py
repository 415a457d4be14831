"""Builds draftretriever's index over a datastore's tokens, in its own process: ``python -m`` this STORE FILE.

Prints one JSON line: seconds, peak_memory_bytes, index_bytes, entries.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from suffolk.benchmarks.folder import make_folder, writing
from suffolk.benchmarks.processes import helper_arguments
from suffolk.benchmarks.retrieval.draftretriever_package import open_writer
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import Internal


def cached_index(store: Path, workdir: Path) -> tuple[Path, dict[str, Any]]:
    """Return the index over ``store`` in ``workdir``, and the cost of building it.

    An index of the same generation is reused.

    Raises:
        Internal: the package failed to build it.
        ResourceExhausted: the folder cannot be written.
    """
    with open_datastore(store) as opened:
        checksums = [segment.checksum for segment in opened.manifest.files()]
    index, facts = workdir / "draftretriever.idx", workdir / "draftretriever.json"
    make_folder(workdir)
    with writing(workdir):
        if index.is_file() and facts.is_file():
            built: dict[str, Any] = json.loads(facts.read_text())
            if built["checksums"] == checksums:
                return index, {**built, "reused": True}
        facts.unlink(missing_ok=True)
        command = [sys.executable, "-m", __name__, str(store), str(index)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Internal(f"draftretriever could not index {store}: {done.stderr.strip()[-300:]}; leave --against out")
        built = {**json.loads(done.stdout), "checksums": checksums}
        facts.write_text(json.dumps(built))
    return index, {**built, "reused": False}


def main(store: str, index: str) -> None:
    """Build the index, and print the cost."""
    begin = time.perf_counter()
    with open_datastore(store) as opened:
        writer = open_writer(index, opened.manifest.vocab_size)
        entries = 0
        for document in opened.documents():
            writer.add_entry(document.tokens.tolist())
            entries += 1
    writer.finalize()
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    size = Path(index).stat().st_size
    print(json.dumps({"seconds": seconds, "peak_memory_bytes": peak, "index_bytes": size, "entries": entries}))


if __name__ == "__main__":
    main(*helper_arguments(2, "suffolk bench retrieval --against draftretriever"))
