"""Settings of a retrieval measurement."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.limits import MAX_BATCH, MAX_BATCH_NODES


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
    queries: int = 20_000
    called: int = 1000
    rounds: int = 3
    checked: int = 20
    tokens: int | None = None
    unseen: tuple[Path, ...] = ()
    against: bool = False
    grpc: bool = False
    batches: tuple[int, ...] = (1, 8, 32)
    max_match: int = 16
    min_match: int = 2
    max_depth: int = 10
    max_nodes: int = 64
    context: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("queries", "called", "rounds", "context", "max_match", "min_match", "max_depth", "max_nodes"):
            if getattr(self, name) < 1:
                raise InvalidArgument(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if self.checked < 0:
            raise InvalidArgument(Field("checked"), f" is {self.checked}; it must be 0 or more")
        if self.tokens is not None and self.tokens < 1:
            raise InvalidArgument(Field("tokens"), f" is {self.tokens}; it must be 1 or more")
        if self.context < 2:
            raise InvalidArgument("context is 1; it must be 2 or more")
        if any(size < 1 for size in self.batches):
            raise InvalidArgument(f"batches are {self.batches}; each must be 1 or more")
        most = min(MAX_BATCH, MAX_BATCH_NODES // self.max_nodes)
        if self.grpc and any(size > most for size in self.batches):
            raise InvalidArgument(
                f"batches are {self.batches}; through gRPC, with {self.max_nodes} nodes a draft, each must be {most} or less"
            )
