"""Settings of a retrieval measurement."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.limits import MAX_BATCH, MAX_BATCH_NODES
from suffolk.datastore.settings import Count, Within, check_fields


@dataclass(frozen=True, slots=True)
class RetrievalBenchOptions:
    """Settings of ``suffolk bench retrieval``. Checked when made.

    Attributes:
        store: the datastore's folder.
        queries: contexts of each kind, all timed inside the C++ core.
        rounds: timed rounds, after one warm-up.
        checked: contexts of each kind whose answers are compared to a scan of the corpus.
        tokens: use the first N tokens of the datastore; None for all.
        unseen: files with texts outside the corpus. If empty, unseen contexts are seen ones with one token replaced.
        called: contexts that are also measured from Python, singly and in batches, and with draftretriever.
        against: whether to measure draftretriever as well.
        grpc: whether to measure through a draft service as well.
        batches: numbers of contexts in one call.
        workdir: folder for the draftretriever index, which a later run reuses.
        max_match, min_match, max_depth, max_nodes: as in ``Retriever.draft``.
        context: number of tokens in a context.
        seed: of every random choice.
    """

    store: Path
    workdir: Path
    queries: Count = 20_000
    called: Count = 1000
    rounds: Count = 3
    checked: Annotated[int, Within(0)] = 20
    tokens: Count | None = None
    unseen: tuple[Path, ...] = ()
    against: bool = False
    grpc: bool = False
    batches: tuple[Count, ...] = (1, 8, 32)
    max_match: Count = 16
    min_match: Count = 2
    max_depth: Count = 10
    max_nodes: Count = 64
    context: Annotated[int, Within(2)] = 16
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        most = min(MAX_BATCH, MAX_BATCH_NODES // self.max_nodes)
        if self.grpc and any(size > most for size in self.batches):
            raise InvalidArgument(
                f"batches are {self.batches}; through gRPC, with {self.max_nodes} nodes a draft, each must be {most} or less"
            )
