"""Wraps the published ``draftretriever`` package (versions 0.1.0 and 0.1.1) for comparisons.

This is not the suffix array that the REST repository has under the same name. The package stores statistics of short token runs.
It samples a tree by random search. Only the last two tokens of a context have an effect. The package returns no counts, and
repeated queries give different answers. A context of one token without a match ends the process. Memory grows with every new
context.
"""

from __future__ import annotations

import inspect
import json
import resource
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suffolk.benchmarks.folder import built_once, make_folder
from suffolk.benchmarks.processes import helper_command
from suffolk.benchmarks.report import import_optional
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import Internal, InvalidArgument, Unsupported

CHOICES = 64
OCCURRENCES = 5000
DEPTH = 10
LONGEST = 16
SHORTEST = 2
NO_TOKEN = -2
"""Pads paths to the same length."""


class DraftRetriever:
    """An open index. ``searches`` counts its searches."""

    def __init__(self, index: Path) -> None:
        self.searches = 0
        self._reader = require_package().Reader(str(index))

    def search(self, context: Sequence[int]) -> list[list[int]]:
        """Search once; return the tree's paths after the context, padded with NO_TOKEN. Empty if nothing was found.

        Raises:
            InvalidArgument: fewer than two tokens.
        """
        if len(context) < SHORTEST:
            raise InvalidArgument(f"the context has {len(context)} tokens; draftretriever needs {SHORTEST}")
        self.searches += 1
        paths: list[list[int]] = self._reader.search(context, OCCURRENCES, CHOICES, DEPTH)[0]
        return paths

    def search_suffixes(self, context: Sequence[int]) -> list[list[int]]:
        """Run REST's loop: one search per suffix, from 16 tokens down to 2, until something is found."""
        for length in range(min(LONGEST, len(context)), SHORTEST - 1, -1):
            if paths := self.search(context[len(context) - length :]):
                return paths
        return []


def require_package() -> Any:
    """Return the module of the package.

    Raises:
        Unsupported: the package is missing, or is not the published one.
    """
    module = import_optional("draftretriever", "draftretriever")
    if "file_path" not in inspect.signature(module.Writer).parameters:
        raise Unsupported(
            "the installed draftretriever is not the published 0.1.x; run: pip install draftretriever==0.1.1"
        )
    return module


def prefixes(paths: Sequence[Sequence[int]]) -> set[tuple[int, ...]]:
    """Return the nodes of the tree with ``paths``. A node is represented by its path from the root."""
    whole = [tuple(token for token in path if token != NO_TOKEN) for path in paths]
    return {path[:depth] for path in whole for depth in range(1, len(path) + 1)}


def cached_index(store: Path, workdir: Path) -> tuple[Path, dict[str, Any]]:
    """Return the index over ``store`` in ``workdir``, and the cost of building it.

    An index of the same generation is reused.

    Raises:
        Internal: the package failed to build it.
        ResourceExhausted: the folder cannot be written.
    """
    index = make_folder(workdir) / "draftretriever.idx"

    def build() -> dict[str, Any]:
        command = helper_command(build_index, store=str(store), index=str(index))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Internal(f"draftretriever could not index {store}: {done.stderr.strip()[-300:]}; leave --against out")
        cost: dict[str, Any] = json.loads(done.stdout)
        return cost

    with open_datastore(store) as opened:
        return index, built_once(index, workdir / "draftretriever.json", opened, build)


def build_index(store: str, index: str) -> dict[str, Any]:
    """Build the index, and return the cost. For a process of its own."""
    begin = time.perf_counter()
    with open_datastore(store) as opened:
        writer = require_package().Writer(index, vocab_size=opened.manifest.vocab_size)
        entries = 0
        for document in opened.documents():
            writer.add_entry(document.tokens.tolist())
            entries += 1
    writer.finalize()
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    size = Path(index).stat().st_size
    return {"seconds": seconds, "peak_memory_bytes": peak, "index_bytes": size, "entries": entries}
