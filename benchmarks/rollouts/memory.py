"""Memories of the answers so far, one class for each method, with the drafters that read them."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.benchmarks.decode.bounding_drafters import CountingDrafter
from suffolk.benchmarks.decode.options import LIMITS, PLAIN
from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.documents import Document
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Unsupported
from suffolk.datastore.retriever import Match
from suffolk.serving.decoding.drafters.load import make_drafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest
from suffolk.serving.store.draft_service.disclosure import StoreView
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.store import create_live_store

SOURCE = 1 << 30
_DEPTH = 24
"""Depth of Arctic's trees, in tokens: the depth that vLLM sets for its method ``suffix``."""


class Memory:
    """The answers that one method keeps. This base class keeps none; plain decoding and prompt lookup use it.

    Attributes:
        drafter: None for plain decoding.
        seconds: seconds that keeping the answers took.
    """

    def __init__(self, drafter: Drafter | None) -> None:
        self.drafter = drafter
        self.seconds = 0.0

    def learn(self, group: str, answer: Sequence[int]) -> None:
        """Keep an ``answer`` to the prompt ``group``, which has just ended."""

    def end_epoch(self) -> None:
        """Called after the last prompt of an epoch."""

    def close(self) -> None:
        """Free what is kept."""


class LiveMemory(Memory):
    """A live store. An answer is appended to the group of its prompt as soon as it ends, and is found by all later prompts."""

    def __init__(self, folder: Path, vocab_size: int, kind: str, alone: bool = False) -> None:
        """``kind``: the drafter's name, datastore or hybrid. ``alone``: whether to search only the prompt's own group."""
        self._store = create_live_store(folder, vocab_size=vocab_size, settings=LiveSettings())
        searched = GroupAlone(self._store) if alone else self._store
        super().__init__(make_drafter(kind, vocab_size, [searched], LIMITS))

    def learn(self, group: str, answer: Sequence[int]) -> None:
        self._append(group, [answer], replace=False)

    def close(self) -> None:
        self._store.close()

    def _append(self, group: str, answers: Sequence[Sequence[int]], replace: bool) -> None:
        begin = time.perf_counter()
        documents = [Document(None, {}, np.asarray(answer, np.uint32)) for answer in answers]
        self._store.append_batch(documents, group=group, replace=replace)
        self.seconds += time.perf_counter() - begin


class PromptTrees(LiveMemory):
    """One index for each prompt, searched for this prompt alone. At an epoch's end, it is rebuilt from the epoch's answers.

    This is the design of HistoSpec (RhymeRL, arXiv 2508.18588): a suffix tree for each prompt, built from the previous epoch.
    """

    def __init__(self, folder: Path, vocab_size: int) -> None:
        super().__init__(folder, vocab_size, "datastore", alone=True)
        self._ended: dict[str, list[Sequence[int]]] = {}

    def learn(self, group: str, answer: Sequence[int]) -> None:
        self._ended.setdefault(group, []).append(answer)

    def end_epoch(self) -> None:
        for group, answers in self._ended.items():
            self._append(group, answers, replace=True)
        self._ended.clear()


class GroupAlone(StoreView):
    """A source that searches only the group of each context."""

    def find_matches(self, query: ContextQuery) -> list[Match]:
        return self._store.find_matches(query._replace(scope="group"))

    def find_drafts(self, query: ContextQuery) -> Sequence[DraftTree]:
        if query.scope == "store":
            return [DraftTree.empty()] * len(query.contexts)
        return self._store.find_drafts(query._replace(scope="group"))


@contextlib.contextmanager
def opened_memories(methods: Sequence[str], vocab_size: int) -> Iterator[dict[str, Memory]]:
    """Yield the empty memories of plain decoding and of ``methods``. They are closed at the end of the block.

    Raises the errors of ``make_memory``.
    """
    with tempfile.TemporaryDirectory(prefix="suffolk-answers-") as folder, contextlib.ExitStack() as stack:
        memories = {way: make_memory(way, Path(folder), vocab_size) for way in (PLAIN, *methods)}
        for memory in memories.values():
            stack.callback(memory.close)
        yield memories


def make_memory(method: str, folder: Path, vocab_size: int) -> Memory:
    """Create the empty memory of ``method``: a method of rollouts or of agents, or plain decoding.

    Raises:
        Unsupported: the method needs a package that is not installed.
    """
    live = partial(LiveMemory, folder / method, vocab_size)
    makers: dict[str, Callable[[], Memory]] = {
        "prompt-lookup": lambda: Memory(PromptLookupDrafter(vocab_size, LIMITS)),
        "prompt trees": lambda: PromptTrees(folder / method, vocab_size),
        "arctic": lambda: Memory(ArcticDrafter()),
        "live store": lambda: live("datastore"),
        "hybrid": lambda: live("hybrid"),
        "shared store": lambda: live("hybrid"),
        "own store": lambda: live("hybrid", alone=True),
        "prediction": lambda: live("hybrid", alone=True),
    }
    return makers.get(method, lambda: Memory(None))()


class ArcticDrafter(CountingDrafter):
    """Speculates a tree for each request, from the answers so far and from the request's own text. Not thread-safe.

    Scores are Arctic's estimates: shares of the occurrences in its tree, multiplied along the path. Raises Unsupported if the
    package is not installed.
    """

    name = "arctic"

    def __init__(self) -> None:
        super().__init__()
        try:
            package = importlib.import_module("arctic_inference.suffix_decoding")
        except ImportError as error:
            raise Unsupported(
                "method 'arctic' needs the package arctic-inference; run 'make arctic', or leave the method out"
            ) from error
        self.cache: Any = package.SuffixDecodingCache(max_tree_depth=_DEPTH)
        self._read: dict[int, int] = {}  # number of tokens of each request that the cache already holds

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        return [self._draft(request) for request in requests]

    def release(self, request_id: int) -> None:
        """Forget the request's own text; its answer stays in the tree of all answers."""
        if self._read.pop(request_id, None) is not None:
            self.cache.stop_request(request_id)

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
    """Return the tree with its nodes in falling order of score. Parents stay before their children."""
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
