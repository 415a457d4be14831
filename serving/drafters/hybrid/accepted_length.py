"""How far a text follows a draft."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree


def reach(tree: DraftTree, tokens: npt.NDArray[np.int32]) -> int:
    """How many of ``tokens`` are on a path of ``tree`` from its root."""
    node = -1
    for depth, token in enumerate(tokens.tolist()):
        found = np.flatnonzero((tree.parents == node) & (tree.tokens == token))
        if not len(found):
            return depth
        node = int(found[0])
    return len(tokens)


def owed(tree: DraftTree, without: DraftTree, sources: int) -> npt.NDArray[np.bool_]:
    """bool[n], the nodes that ``tree`` owes to ``sources`` (source bits), where ``without`` them there would be that tree: what
    they propose beyond it, and all behind that."""
    pairs = zip(without.parents.tolist(), without.tokens.tolist(), strict=True)
    places = {pair: node for node, pair in enumerate(pairs)}
    there = {-1: -1}  # the nodes of ``tree`` that it has too, and where
    found = np.zeros(len(tree), np.bool_)
    for node, (parent, token) in enumerate(zip(tree.parents.tolist(), tree.tokens.tolist(), strict=True)):
        place = places.get((there[parent], token)) if parent in there else None
        if place is not None:
            there[node] = place
        else:
            found[node] = bool(tree.sources[node] & sources) or (parent >= 0 and found[parent])
    return found


def path_to(tree: DraftTree, node: int) -> npt.NDArray[np.int64]:
    """int64[depth], the nodes from the root's child down to ``node``."""
    path = []
    while node >= 0:
        path.append(node)
        node = int(tree.parents[node])
    return np.asarray(path[::-1], np.int64)
