"""Wraps the published ``draftretriever`` package (versions 0.1.0 and 0.1.1) for comparisons.

The suffix array of the same name in the REST repository is other code. The package stores statistics of short token
runs and samples a tree by random search. Only the last two tokens of a context have an effect. The package returns no
counts, and repeated queries give different answers. A context of one token without a match ends the
process. Memory grows with every new context.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suffolk.benchmarks.report import missing
from suffolk.datastore.errors import InvalidArgument, Unsupported

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
        self._reader = _module().Reader(str(index))

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


def require_package() -> None:
    """Check before a long run that the package is installed.

    Raises:
        Unsupported: the package is missing, or is not the published one.
    """
    _module()


def open_writer(index: str, vocab_size: int) -> Any:
    """Create a writer with ``add_entry(list of ids)`` and ``finalize()``."""
    return _module().Writer(index, vocab_size=vocab_size)


def prefixes(paths: Sequence[Sequence[int]]) -> set[tuple[int, ...]]:
    """Return the nodes of the tree with ``paths``; each node is its path."""
    whole = [tuple(token for token in path if token != NO_TOKEN) for path in paths]
    return {path[:depth] for path in whole for depth in range(1, len(path) + 1)}


def _module() -> Any:
    try:
        module = importlib.import_module("draftretriever")
    except ImportError as error:
        raise missing("draftretriever") from error
    if "file_path" not in inspect.signature(module.Writer).parameters:
        raise Unsupported(
            "the installed draftretriever is not the published 0.1.x; run: pip install draftretriever==0.1.1"
        )
    return module
