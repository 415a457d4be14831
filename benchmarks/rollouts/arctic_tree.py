"""A drafter over the suffix tree of Arctic Inference (the package ``arctic-inference``), for comparison."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest

SOURCE = 1 << 30
_DEPTH = 24
"""Depth of its trees, in tokens: the depth that vLLM sets for its method ``suffix``."""


class ArcticDrafter:
    """Speculates a tree for each request, from the answers so far and from the request's own text. Not thread-safe.

    Scores are Arctic's estimates: shares of the occurrences in its tree, multiplied along the path. Raises Unsupported if the
    package is not installed.
    """

    name = "arctic"

    def __init__(self) -> None:
        try:
            package = importlib.import_module("arctic_inference.suffix_decoding")
        except ImportError as error:
            raise Unsupported(
                "method 'arctic' needs the package arctic-inference; run 'make arctic', or leave the method out"
            ) from error
        self.cache: Any = package.SuffixDecodingCache(max_tree_depth=_DEPTH)
        self._read: dict[int, int] = {}  # tokens of each request that the cache has
        self._calls = 0

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        return [self._draft(request) for request in requests]

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        pass

    def release(self, request_id: int) -> None:
        """Forget the request's own text; its answer stays in the tree of all answers."""
        if self._read.pop(request_id, None) is not None:
            self.cache.stop_request(request_id)

    def stats(self) -> dict[str, float]:
        return {"calls": self._calls, "failed": 0}

    def close(self) -> None:
        for request_id in list(self._read):
            self.release(request_id)

    def _draft(self, request: DraftRequest) -> DraftTree:
        self._calls += 1
        number, tokens = request.request_id, request.tokens.copy()  # the package takes no read-only arrays
        if number not in self._read:
            self.cache.start_request(number, tokens[: request.prompt_tokens])
            self._read[number] = request.prompt_tokens
        if len(tokens) > self._read[number]:
            self.cache.add_active_response(number, tokens[self._read[number] :])
            self._read[number] = len(tokens)
        most = min(request.max_nodes, request.room)
        if most < 1:
            return DraftTree.empty()
        draft = self.cache.speculate(number, tokens[-_DEPTH:], max_spec_tokens=most, use_tree_spec=True)
        return _tree(draft.token_ids, draft.parents, draft.probs)


def _tree(tokens: Sequence[int], parents: Sequence[int], scores: Sequence[float]) -> DraftTree:
    """The tree with its nodes in falling order of score; parents stay before their children."""
    order = np.argsort(-np.asarray(scores, np.float64), kind="stable")
    places = np.empty(len(order) + 1, np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    places[-1] = -1
    return DraftTree(
        np.asarray(tokens, np.int32)[order],
        places[np.asarray(parents, np.int64)[order]],
        np.asarray(scores, np.float32)[order],
        np.full(len(order), SOURCE, np.uint32),
    )
