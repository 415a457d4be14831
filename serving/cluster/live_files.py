"""Which files of live stores a node has."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from suffolk.serving.store.live_store.identity import has_log, is_live


@dataclass(frozen=True)
class LiveFiles:
    """Live stores on a node, and the shards of such: NAME, or NAME@NUMBER-of-TOTAL.

    Attributes:
        found: those that have a folder.
        with_documents: those of them to which documents were appended.
    """

    found: frozenset[str] = frozenset()
    with_documents: frozenset[str] = frozenset()


def find_live_files(folder: Path, stores: Collection[str]) -> LiveFiles:
    """The files of ``stores``. ``folder``: the node's part of the cluster's folder."""
    live = folder / "live"
    places = [path for name in stores for path in (live / name, *live.glob(f"{name}@*-of-*")) if is_live(path)]
    return LiveFiles(
        frozenset(str(path.relative_to(live)) for path in places),
        frozenset(str(path.relative_to(live)) for path in places if has_log(path)),
    )
