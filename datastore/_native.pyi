from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

_Tree = tuple[
    npt.NDArray[np.int32],
    npt.NDArray[np.int32],
    npt.NDArray[np.float32],
    npt.NDArray[np.uint32],
    npt.NDArray[np.uint64],
    int,
    int,
]
"""The fields of a DraftTree."""

_Progress = Callable[[float], None] | None

class Segment:
    def __init__(self, path: str) -> None: ...
    def lock(self) -> None: ...
    def resident_bytes(self) -> int | None: ...
    def facts(self) -> dict[str, Any]: ...
    def document_at(self, position: int) -> int: ...
    def document_range(self, index: int) -> tuple[int, int]: ...
    def read_tokens(self, begin: int, limit: int) -> npt.NDArray[np.uint32]: ...
    def document_table(self) -> memoryview: ...
    def verify(self, depth: str, progress: _Progress = ...) -> None: ...

class Searcher:
    def __init__(
        self,
        segments: Sequence[Segment],
        deletions: Sequence[Segment] = ...,
        deleted_documents: Sequence[npt.NDArray[np.uint32]] = ...,
        threads: int = ...,
    ) -> None: ...
    def lookup(self, contexts: Sequence[Any], max_match: int, min_match: int) -> list[tuple[int, int]]: ...
    def draft(
        self,
        contexts: Sequence[Any],
        max_match: int,
        min_match: int,
        max_depth: int,
        max_nodes: Sequence[int],
        source: int,
    ) -> list[_Tree]: ...
    def clock(
        self, contexts: Sequence[Any], max_match: int, min_match: int, max_depth: int, max_nodes: int
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]: ...
    def occurrences(self, pattern: Any, limit: int) -> list[tuple[int, int]]: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def order_depth(self) -> int: ...

class ContextIndex:
    def __init__(self, vocab_size: int) -> None: ...
    def append(self, ids: Any) -> None: ...
    def truncate(self, size: int) -> None: ...
    @property
    def size(self) -> int: ...
    def draft(self, max_match: int, min_match: int, max_depth: int, max_nodes: int, source: int) -> _Tree: ...

def sort_suffixes(
    tokens: npt.NDArray[Any], vocab_size: int, order_depth: int, threads: int
) -> npt.NDArray[np.uint32]: ...
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
) -> tuple[int, int, int, int]: ...
def merge_segments(
    path: str,
    segments: Sequence[Segment],
    deleted: Sequence[npt.NDArray[np.uint32]],
    document_table: bytes,
    threads: int,
    progress: _Progress,
) -> tuple[int, int, int, int]: ...

class Calibrator:
    def __init__(
        self, constant: float, match: float, share: float, count: float, depth: float, decay: float
    ) -> None: ...
    def score(
        self,
        tokens: npt.NDArray[np.int32],
        parents: npt.NDArray[np.int32],
        counts: npt.NDArray[np.uint64] | None,
        match_length: int,
        match_count: int,
    ) -> npt.NDArray[np.float32]: ...
    def learn(
        self,
        tokens: npt.NDArray[np.int32],
        parents: npt.NDArray[np.int32],
        counts: npt.NDArray[np.uint64] | None,
        match_length: int,
        match_count: int,
        followed: npt.NDArray[np.int32],
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]: ...
    def state(self) -> npt.NDArray[np.float64]: ...
    def restore(self, state: npt.NDArray[np.float64]) -> None: ...

class Recycler:
    WIDTH: ClassVar[int]
    ORDER: ClassVar[int]

    def __init__(self, ends: int) -> None: ...
    def learn(
        self,
        tokens: npt.NDArray[np.int32],
        candidates: npt.NDArray[np.int32],
        log_probabilities: npt.NDArray[np.float32],
    ) -> None: ...
    def draft(
        self,
        tokens: npt.NDArray[np.int32],
        position: int,
        max_depth: int,
        max_nodes: int,
        seed: int,
        temperature: float,
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32]]: ...
    @property
    def size(self) -> int: ...

_Columns = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32], npt.NDArray[np.uint32]]
"""Tokens, parents, scores and sources of a DraftTree."""

def merge_trees(trees: Sequence[_Columns], weights: npt.NDArray[np.float64], max_nodes: int) -> _Columns: ...
def reweight_scores(
    tokens: npt.NDArray[np.int32],
    parents: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
    sources: npt.NDArray[np.uint32],
    position: int,
    seed: int,
    temperature: float,
) -> npt.NDArray[np.float32]: ...
def check_tree(
    tokens: npt.NDArray[np.int32],
    parents: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
    sources: npt.NDArray[np.uint32],
    vocab_size: int,
) -> None: ...
def tree_depths(parents: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]: ...
def lay_out(
    last_token: int, tokens: npt.NDArray[np.int32], parents: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]: ...

class Element:
    FLOAT32: Element
    BFLOAT16: Element
    FLOAT16: Element

def skinny_gemm_supports(element: Element) -> bool: ...
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
