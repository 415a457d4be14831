"""Settings of the measurements of datastores, which ``suffolk bench`` reads as options. Checked when made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from suffolk.datastore.checks import ABOVE_0, check_range
from suffolk.datastore.datastore import RESIDENCIES
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.limits import MAX_BATCH, MAX_BATCH_NODES
from suffolk.datastore.settings import REQUIRED, Checked, Count, Share, Within, argument, check_fields, option

LONGEST_SEQUENCE = 64
LEAST_SORTED = 10_000
"""Tokens of the smallest input of a sort. An input of repeats then still consists of documents of 10 tokens."""


@dataclass(frozen=True, kw_only=True)
class MeasuredStore(Checked):
    """The datastore of a measurement, and the seed of every random choice."""

    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class RetrievalBenchOptions(MeasuredStore):
    """``workdir``: folder of the draftretriever index, which a later run reuses."""

    queries: Count = option(20_000, "contexts of each kind: seen, unseen")
    called: Count = option(
        1000, "number of contexts of each kind that are also timed from Python, over gRPC and in draftretriever"
    )
    rounds: Count = option(3, "number of timed rounds, after one round to warm up")
    unseen: tuple[Path, ...] = option(
        (),
        "text or .jsonl files outside the corpus, for the unseen contexts (default: seen contexts with a token replaced)",
        flag="--contexts",
        several=True,
    )
    grpc: bool = option(False, "also measure batches through 'suffolk serve'")
    batches: tuple[Count, ...] = option((1, 8, 32), "numbers of contexts in a call, with --grpc", several=True)
    tokens: Count | None = option(None, "use only the first N tokens (default: all)")
    checked: Annotated[int, Within(0)] = option(20, "number of answers of each kind to check by a scan of all tokens")
    max_nodes: Count = option(64, "nodes in a draft")
    workdir: Path = Path()
    max_match: Count = 16
    min_match: Count = 2
    max_depth: Count = 10
    context: Annotated[int, Within(2)] = 16
    against: str | None = option(None, "also measure this package, on the same tokens", choices=("draftretriever",))

    def __post_init__(self) -> None:
        super().__post_init__()
        most = min(MAX_BATCH, MAX_BATCH_NODES // self.max_nodes)
        if self.grpc and any(size > most for size in self.batches):
            raise InvalidArgument(
                f"batches are {self.batches}; through gRPC, with {self.max_nodes} nodes a draft, each must be {most} or less"
            )


@dataclass(frozen=True, kw_only=True)
class ServiceOptions(MeasuredStore):
    """Settings of the measurement of a draft service. Calls under load have the largest of the batch sizes ``batches``."""

    calls: Count = option(500, "calls of each batch size, one after another")
    batches: Annotated[tuple[Count, ...], Within(1)] = option((1, 32), "contexts in one call", several=True)
    clients: Annotated[tuple[Count, ...], Within(1)] = option(
        (1, 4, 16, 64, 256), "clients that call at the same time", several=True
    )
    seconds: Annotated[float, Within(ABOVE_0)] = option(5.0, "duration of each load")
    deadline_ms: Annotated[float, Within(ABOVE_0)] = option(250.0, "deadline of a call under load", metavar="MS")
    max_nodes: Count = option(64, "nodes in a draft")
    max_match: Count = 16


@dataclass(frozen=True, kw_only=True)
class CountingOptions(MeasuredStore):
    """``workdir``: folder of infini-gram's index, which a later run reuses."""

    queries: Count = option(
        1000, "number of sequences of each length that occur; as many again have one token replaced"
    )
    lengths: tuple[Annotated[int, Within(1, LONGEST_SEQUENCE)], ...] = option(
        (1, 2, 4, 8, 16), "tokens in a sequence", several=True
    )
    rounds: Count = option(3, "number of timed rounds, after one round to warm up")
    tokens: Count | None = option(None, "use only the first N tokens (default: all)")
    workdir: Path = Path()


@dataclass(frozen=True, kw_only=True)
class BuildingOptions:
    """``workdir``: parent of a temporary folder for both indexes. ``seed``: chooses the ranks at which an order is checked."""

    corpora: tuple[str, ...] = argument(REQUIRED, "file, folder or pattern with text", metavar="CORPUS")
    tokenizer: str = option(REQUIRED, "Hugging Face folder, tokenizer.json or hub name", metavar="TOK")
    text_field: str = option("text", "field or column with the text", metavar="NAME")
    extensions: tuple[str, ...] = ()
    rounds: Count = option(1, "runs of each builder, in turn")
    threads: int = option(0, "processes and threads of the build and of its sort (default: one for each core)")
    sort_tokens: tuple[int, ...] = option(
        (20_000_000, 80_000_000),
        "number of tokens to sort in the comparison with pydivsufsort, at most all; 0 skips the comparison",
        several=True,
    )
    sort_rounds: Count = option(3, "rounds of each sort")
    sort_repeats: int = option(
        10_000_000, "number of tokens of the inputs that consist of repeats; 0 skips these inputs"
    )
    workdir: Path = Path()
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        for name, sizes in (("sort_tokens", self.sort_tokens), ("sort_repeats", (self.sort_repeats,))):
            for size in filter(None, sizes):
                check_range(name, size, LEAST_SORTED)


@dataclass(frozen=True, kw_only=True)
class MemoryOptions(MeasuredStore):
    """``workdir``: folder of the contexts, which the measured processes read."""

    store: Path = argument(REQUIRED, "a datastore's folder, on the disk to be measured", metavar="STORE")
    limits: tuple[Share, ...] = option(
        (1.0, 0.5, 0.2), "share of the store that memory may hold; 1 sets no limit", metavar="SHARE", several=True
    )
    residencies: tuple[Annotated[str, RESIDENCIES], ...] = option(
        ("mmap", "warm"), "values of --residency to measure", flag="--residency", several=True
    )
    queries: Count = option(1000, "contexts")
    rounds: Count = option(2, "rounds after the cold one")
    workdir: Path = Path()
    context: Count = 16
    max_nodes: Count = 64


@dataclass(frozen=True, kw_only=True)
class LiveBenchOptions(MeasuredStore):
    store: Path = argument(REQUIRED, "a datastore, whose documents are appended", metavar="STORE")
    tokens: Count = option(8_000_000, "tokens to append")
    rival_tokens: Count = option(2_000_000, "tokens to append to the other index, which takes more memory")
    document_tokens: Count = option(500, "tokens of a document; longer ones are cut")
    turns: Count = option(8, "number of parts of the insertion; the indexes take turns")
    rate: Count = option(100_000, "tokens appended a second while drafts are measured")
    queries: Count = option(4_000, "contexts")
    groups: Count = option(100_000, "number of groups, each with one document of one token")
    max_match: Count = option(16, "longest match")
    min_match: Count = option(2, "shortest match")
    max_depth: Count = option(10, "depth of a draft")
    max_nodes: Count = option(64, "nodes of a draft")
    against: str | None = option(None, "also measure this package, on the same tokens", choices=("arctic-inference",))
