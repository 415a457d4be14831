"""The extension module of csrc/bindings. Columns of a tree have an entry for each node (datastore/draft_tree.py)."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, overload

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree

_Ints = npt.NDArray[np.int32]
_Unsigned = npt.NDArray[np.uint32]
_Counts = npt.NDArray[np.uint64]
_Floats = npt.NDArray[np.float32]
_Doubles = npt.NDArray[np.float64]
_Bytes = npt.NDArray[np.uint8]
_Longs = npt.NDArray[np.int64]
_Progress = Callable[[float], None] | None
_Summary = tuple[int, int, int, int]
"""Tokens, documents, bytes and checksum of a segment file."""

class Segment:
    def __init__(self, path: str) -> None: ...
    def lock(self) -> None: ...
    def resident_bytes(self) -> int | None: ...
    def facts(self) -> dict[str, Any]: ...
    def document_at(self, position: int) -> int: ...
    def document_range(self, index: int) -> tuple[int, int]: ...
    def read_tokens(self, begin: int, limit: int) -> _Unsigned: ...
    def document_table(self) -> memoryview: ...
    def verify(self, depth: str, progress: _Progress = ...) -> None: ...

class Searched:
    """The base of the indexes, which all answer the same queries. Only documents in memory have groups."""

    def lookup(
        self, contexts: Sequence[Any], max_match: int, min_match: int, groups: _Counts | None = ..., scope: str = ...
    ) -> list[tuple[int, int]]: ...
    def draft(
        self,
        contexts: Sequence[Any],
        max_match: int,
        min_match: int,
        max_depth: int,
        max_nodes: Sequence[int],
        source: int,
        groups: _Counts | None = ...,
        scope: str = ...,
        least_counts: Sequence[int] = ...,
    ) -> Trees:
        """One tree for each context.

        ``scope``: store, group or group_first; the latter two need ``groups``, as many keys for each context; 0 is none.

        ``least_counts``: nodes that occur less often are left out; one entry for each context, or none."""

    def count_documents(
        self, contexts: Sequence[Any], most: int, groups: _Counts | None = ..., scope: str = ...
    ) -> list[int]: ...
    def clock(
        self, contexts: Sequence[Any], max_match: int, min_match: int, max_depth: int, max_nodes: int
    ) -> tuple[_Doubles, _Doubles]: ...
    @property
    def order_depth(self) -> int: ...

class Searcher(Searched):
    def __init__(
        self,
        segments: Sequence[Segment],
        deletions: Sequence[Segment] = ...,
        deleted_documents: Sequence[_Unsigned] = ...,
        threads: int = ...,
    ) -> None: ...
    def occurrences(self, pattern: Any, limit: int) -> list[tuple[int, int]]: ...

class LiveIndex(Searched):
    """Segments in memory over published files (csrc/core/live_index.h). Thread-safe; calls release the GIL."""

    def __init__(self, vocab_size: int, order_depth: int, threads: int = ...) -> None: ...
    def append(
        self,
        tokens: _Unsigned,
        lengths: _Counts,
        groups: _Counts,
        origins: Sequence[bytes],
        times: _Longs,
        removed: _Counts | None = ...,
        sequences: _Counts | None = ...,
    ) -> int:
        """Append documents and remove others, in one snapshot; return the number of the first. ``tokens``: of all documents, one
        after the other; ``groups``: 0 for none; ``sequences``: rising numbers, or None for the next ones."""

    def remove(self, sequences: _Counts) -> int:
        """Remove documents in memory; return how many. NotFound, and nothing changes, for a number that is not in memory."""

    def rebase(
        self,
        segments: Sequence[Segment],
        deletions: Sequence[Segment],
        deleted_documents: Sequence[_Unsigned],
        flushed_through: int,
        grouped_stay: bool = ...,
    ) -> None:
        """Search other files, and drop documents in memory up to number ``flushed_through``, in one snapshot.
        ``grouped_stay``: drop only those without a group. Documents in files have no group."""

    def clear(self) -> None:
        """Drop all documents in memory, and take any numbers again."""

    def drop_before(self, sequence: int) -> int:
        """Drop the oldest whole segments of which all numbers are below ``sequence``; return the number of documents."""

    def occurrences(
        self, pattern: Any, limit: int, length: int, before: int = ..., group: int = ..., scope: str = ...
    ) -> list[tuple[Segment | None, int, int, bytes, _Unsigned, _Unsigned]]:
        """In a file: (segment, 0, position, empty, empty, empty). In memory: (None, number, offset, origin, up to ``length`` tokens
        from the offset on, up to ``before`` tokens before it)."""

    def documents(
        self, begin: int, limit: int, tokens: bool = ...
    ) -> tuple[_Counts, _Unsigned, _Counts, _Counts, list[bytes], _Longs]:
        """Up to ``limit`` documents in memory from number ``begin`` on: sequences, tokens, lengths, groups, origins, times. At
        least one, and fewer if their tokens, which are left out unless ``tokens``, are many."""

    def group_documents(self, key: int) -> tuple[_Counts, _Counts]:
        """The numbers and the lengths of a group's documents in memory."""

    def group_stats(self, key: int) -> dict[str, int]:
        """Of a group in memory: documents, tokens, oldest_sequence, newest_sequence (0: none)."""

    def stats(self) -> dict[str, int]:
        """tokens, documents, bytes, segments, deletions, merge_debt, merged_tokens, next_sequence, oldest_sequence, oldest_time."""

    def settle(self) -> None:
        """Wait until no merge is running or due, and what merges replaced is freed."""

    def close(self) -> None:
        """Free everything. Later calls raise Unavailable."""

class MergedSearcher(Searched):
    """Several indexes of one vocabulary, searched as one that holds each document as often as the weight of its part.

    Each call takes the parts' snapshots."""

    def __init__(self, parts: Sequence[Searched], weights: Sequence[int], threads: int = ...) -> None: ...

class ContextIndex:
    def __init__(self, vocab_size: int) -> None: ...
    def append(self, ids: Any) -> None: ...
    def truncate(self, size: int) -> None: ...
    def follow(self, ids: Any) -> None: ...
    @property
    def size(self) -> int: ...

def draft_contexts(
    indexes: Sequence[ContextIndex],
    max_match: int,
    min_match: int,
    max_depth: int,
    max_nodes: Sequence[int],
    source: int,
) -> Trees:
    """One tree for each index, within its ``max_nodes``."""

class ParallelTexts:
    def __init__(self, vocab_size: int) -> None: ...
    @property
    def size(self) -> int: ...
    def follow(self, number: int, ids: Any) -> None: ...
    def remove(self, number: int) -> None: ...
    def draft(
        self,
        number: int,
        context: Any,
        max_match: int,
        min_match: int,
        max_depth: int,
        max_nodes: int,
        source: int,
    ) -> Trees: ...

def sort_suffixes(tokens: npt.NDArray[Any], vocab_size: int, order_depth: int, threads: int) -> _Unsigned: ...
def warm(segments: Sequence[Segment], whole: bool) -> None: ...
def write_segment(
    path: str,
    tokens: npt.NDArray[Any],
    vocab_size: int,
    order_depth: int,
    fingerprint: bytes,
    document_table: bytes,
    threads: int,
    progress: _Progress,
) -> _Summary: ...
def merge_segments(
    path: str,
    segments: Sequence[Segment],
    deleted: Sequence[_Unsigned],
    document_table: bytes,
    threads: int,
    progress: _Progress,
) -> _Summary: ...

class Trees(Sequence[DraftTree]):
    """Trees in the columns of one object (csrc/drafting/trees.h). Indexing makes a DraftTree with a copy."""

    def __init__(self, trees: Sequence[DraftTree]) -> None:
        """Raises InvalidArgument if a column has another type or length."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, at: int) -> DraftTree: ...
    @overload
    def __getitem__(self, at: slice) -> list[DraftTree]: ...

class Drafts(Sequence[list[DraftTree]]):
    """The trees of several requests, by request. ``counts``: how many of ``trees`` each request has, in order."""

    @overload
    def __init__(self, drafts: Sequence[Sequence[DraftTree]]) -> None:
        """Raises as ``Trees``."""

    @overload
    def __init__(self, trees: Sequence[DraftTree], counts: Sequence[int]) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, at: int) -> list[DraftTree]: ...  # type: ignore[override]  # no slices
    @property
    def trees(self) -> Trees: ...
    def has_trees(self, at: int) -> bool: ...
    def reweight(self, at: int, position: int, seed: int, temperature: float) -> None:
        """Replace the scores of the trees of request ``at`` (csrc/drafting/noise_reweighting.h)."""

class Reliability:
    sums: Any
    """Three rows, by bin: the sum of predictions, the sum of outcomes, and the number."""

    def __init__(self, decay: float) -> None: ...
    def add(self, predicted: _Doubles, taken: _Bytes) -> None: ...

class Calibrator:
    def __init__(
        self, constant: float, match: float, share: float, count: float, depth: float, decay: float
    ) -> None: ...
    @property
    def reliability(self) -> Reliability: ...
    def state(self) -> _Doubles: ...
    def restore(self, state: _Doubles) -> None: ...

class PassTimes:
    """The estimates of CostModel (serving/decoding/engine/costs/cost_model.py)."""

    def __init__(
        self,
        sizes: Sequence[float],
        measured: Sequence[float],
        per_request: float,
        per_key: float,
        per_pair: float,
    ) -> None: ...
    def times(self, rows: _Doubles, requests: float, context: float, deviations: float, reads: bool) -> _Doubles: ...
    def update(self, rows: float, requests: float, context: float, seconds: float) -> None: ...
    def slowdown(self) -> float: ...

class NextTokenTable:
    WIDTH: ClassVar[int]
    ORDER: ClassVar[int]

    def __init__(self, ends: int) -> None: ...
    def learn(self, tokens: _Ints, candidates: _Ints, log_probabilities: _Floats) -> None: ...
    def draft(
        self, tokens: _Ints, position: int, max_depth: int, max_nodes: int, seed: int, temperature: float
    ) -> tuple[_Ints, _Ints, _Floats]: ...
    @property
    def size(self) -> int: ...

def score_drafts(drafts: Drafts, calibrators: Sequence[Calibrator]) -> None:
    """Replace the scores of each request's trees by its calibrator's scores. Changes nothing if a tree is refused."""

def learn_drafts(entries: Sequence[tuple[Calibrator, Drafts, int, _Ints]]) -> None:
    """Each calibrator learns from the trees of a request, and from the tokens that followed."""

def largest_trees(trees: Sequence[DraftTree], counts: Sequence[int]) -> Drafts:
    """For each request, the largest of its trees of each match length; none without nodes. ``counts``: as in ``Drafts``."""

def gather(parts: Sequence[tuple[Drafts, Sequence[int]]], requests: int) -> Drafts:
    """The trees of all parts, by request. Each part has the places of its requests."""

def merge(parts: Sequence[tuple[Drafts, Sequence[int], Sequence[float]]], max_nodes: Sequence[int]) -> Trees:
    """The merged tree of each request. Each part has the places of its requests, and the factors of their scores."""

def judge(
    drafts: Drafts, max_nodes: Sequence[int], factors: Sequence[float], least: Sequence[float]
) -> tuple[Drafts, list[float], list[float]]:
    """For each request, of the trees of one source: the nodes without a parent in the merged tree, the sum of their scores, and
    the expected tokens of the best tree, of nodes whose scores times the factor are at least ``least``."""

def noisy_argmax(logits: npt.NDArray[np.float32], temperature: float, seed: int, positions: _Longs) -> _Longs: ...
def check_trees(trees: Sequence[DraftTree], vocab_size: int) -> None: ...
def checked_trees(trees: Sequence[DraftTree], vocab_size: int, max_nodes: Sequence[int]) -> list[DraftTree]:
    """Copies of the first nodes of all trees, without their counts. Raises as ``check_trees``."""

def accepted_lengths(entries: Sequence[tuple[Drafts, int, _Ints]]) -> list[int]:
    """For the trees of a request, and a text: its most leading tokens that form a path of one of the trees from its root."""

def count_nodes(trees: Sequence[DraftTree]) -> list[tuple[int, int, int]]:
    """Source bits, depth and number of the nodes of all trees, by rising source bits and depth."""

def tree_depths(parents: _Ints) -> _Ints: ...
def path_along(tokens: _Ints, parents: _Ints, text: _Ints) -> _Longs: ...
def accepted_path(tokens: _Ints, parents: _Ints, sampled: _Longs) -> _Longs: ...
def lay_out(last_token: int, tokens: _Ints, parents: _Ints) -> tuple[_Longs, _Longs, npt.NDArray[np.bool_] | None]: ...

class Element:
    FLOAT32: Element
    BFLOAT16: Element
    FLOAT16: Element

def skinny_gemm_supports(element: Element) -> bool: ...
def skinny_gemm_instructions(element: Element, inputs: int, outputs: int) -> str: ...
def attend_instructions(element: Element, key_width: int, value_width: int) -> str: ...
def attend(
    element: Element,
    query: int,
    row_stride: int,
    head_stride: int,
    keys: int,
    values: int,
    out: int,
    heads: int,
    key_heads: int,
    key_width: int,
    value_width: int,
    spans: int,
    span_count: int,
    offsets: int,
    ancestors: int,
    scaling: float,
    softcap: float,
    window: int,
    threads: int,
) -> None: ...
def skinny_gemm(
    element: Element,
    rows: int,
    row_stride: int,
    weights: int,
    scales: int,
    bias: int,
    out: int,
    row_count: int,
    inputs: int,
    outputs: int,
    threads: int,
) -> None: ...
