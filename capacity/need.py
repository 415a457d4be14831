"""The load and text to serve, and the nodes that serve them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Annotated

from suffolk.build_index.options import MAX_SEGMENT_TOKENS
from suffolk.build_index.plan import segment_bytes
from suffolk.capacity.queueing import MOST_UTILISATION
from suffolk.datastore.checks import ABOVE_0
from suffolk.datastore.limits import MAX_BATCH
from suffolk.datastore.segment import token_dtype
from suffolk.datastore.settings import REQUIRED, Checked, Share, Within, check_fields, option, rare

MEMORY_SHARE, DISK_SHARE, NETWORK_SHARE, READS_SHARE = 0.9, 0.8, 0.7, 0.7
"""Shares of a node's memory, disk, network and disk reads that a plan uses.

The rest is for the system, for files of a new generation beside the old one, and for peaks.
"""

Amount = Annotated[int, Within(1, 10**18)]
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}


@dataclass(frozen=True, slots=True)
class Node:
    """One machine: cores, bytes of memory and of disk, bits a second in each direction, random disk reads a second."""

    cores: Annotated[int, Within(1, 1024)] = 32
    memory: Amount = 256 * 10**9
    disk: Amount = 4 * 10**12
    network: Amount = 25 * 10**9
    reads: Amount = 100_000

    def __post_init__(self) -> None:
        check_fields(self, " of a node")


def read_amount(text: str, units: Mapping[str, int] = UNITS) -> int:
    """Return the whole number in a text, for example 1e12, 1T, 2.5G or 64. Raises ValueError if the text is no whole number."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    try:
        value = Decimal(text[: len(text) - len(unit)]) * units[unit]
    except (InvalidOperation, KeyError) as error:
        raise ValueError(f"{text!r} is no amount") from error
    if not value.is_finite() or value != int(value):
        raise ValueError(f"{text!r} is no whole number")
    return int(value)


def amount_option(default: object, help: str, **more: object) -> int:
    """An option whose value is an amount, for example 1T."""
    found: int = option(default, help, read=read_amount, metavar="AMOUNT", **more)
    return found


@dataclass(frozen=True, kw_only=True)
class NeededLoad:
    """The queries to the datastore, and the tokens appended to it. ``tokens`` count no separators."""

    tokens: Annotated[int, Within(1, 10**18)] = amount_option(REQUIRED, "tokens of the datastore")
    workers: Annotated[int, Within(1, 10**9)] = amount_option(REQUIRED, "decoders, each of which sends one call a step")
    steps_per_second: Annotated[float, Within(ABOVE_0, 1e6)] = option(REQUIRED, "worker's steps a second", metavar="N")
    batch: Annotated[int, Within(1, MAX_BATCH)] = option(REQUIRED, "requests that a worker decodes at once")
    asked: Share = option(1.0, "share of the steps that ask the datastore", metavar="SHARE")
    latency_ms: Annotated[float, Within(ABOVE_0)] | None = option(
        None, "milliseconds within which 99 % of the steps need their drafts (default: a step's time)", metavar="MS"
    )
    append_tokens: Annotated[int, Within(0, 10**15)] = amount_option(0, "tokens a second that clients append")
    log_copies: Annotated[int, Within(1, 100)] = option(2, "nodes that keep the log of appends")


@dataclass(frozen=True, kw_only=True)
class NeededText:
    """The text of the datastore, and the share of its index that is in memory."""

    GROUP = "text"
    vocab_size: Annotated[int, Within(1, 2**31)] = option(49152, "number of token ids; up to 65,535, each has 2 bytes")
    document_tokens: Annotated[int, Within(1, 10**18)] = amount_option(4000, "tokens of a document")
    segment_tokens: Annotated[int, Within(1, MAX_SEGMENT_TOKENS)] | None = amount_option(
        None, "tokens of a segment (default: as many as a build and a node's memory allow)"
    )
    in_memory: Share = option(1.0, "share of the index that is in memory", metavar="SHARE")
    misses: Annotated[float, Within(0, 1)] | None = option(
        None, "share of page reads that miss memory (default: 1 less --in-memory)", metavar="SHARE"
    )


@dataclass(frozen=True, kw_only=True)
class NodeUse:
    """How nodes are used."""

    GROUP = "a node"
    utilisation: Annotated[float, Within(ABOVE_0, MOST_UTILISATION)] = option(
        0.7, "share of the time for which a server may be busy", metavar="SHARE"
    )
    spares: Annotated[int, Within(0, 1000)] = option(1, "nodes of each shard that may fail at once")
    round_trip_ms: Annotated[float, Within(0)] = option(0.2, "a network round trip", metavar="MS")
    rounds: Annotated[int, Within(1, 3)] = rare(3, "calls to each shard for a draft, if there are several shards")


@dataclass(frozen=True, kw_only=True)
class Need(NeededLoad, NeededText, NodeUse, Checked):
    """The text and the load. Checked when made."""

    node: Node = field(default_factory=Node)

    @property
    def drafts_per_second(self) -> float:
        """Batches of drafts a second of all workers."""
        return self.workers * self.steps_per_second * self.asked

    @property
    def lookups_per_second(self) -> float:
        """Contexts a second of all workers."""
        return self.drafts_per_second * self.batch

    @property
    def miss_share(self) -> float:
        """Share of page reads that go to disk."""
        return 1 - self.in_memory if self.misses is None else self.misses

    @property
    def latency_limit(self) -> float:
        """Seconds within which 99 % of the steps must have their drafts."""
        return 1 / self.steps_per_second if self.latency_ms is None else self.latency_ms / 1e3

    @property
    def tokens_of_segment(self) -> int:
        """Tokens of a segment: the given number, or as many as a build allows and fit into a node's memory during it."""
        if self.segment_tokens is not None:
            return min(self.segment_tokens, self.tokens)
        buildable = int(MEMORY_SHARE * self.node.memory / segment_bytes(1, token_dtype(self.vocab_size).itemsize))
        return max(1, min(MAX_SEGMENT_TOKENS, buildable, self.tokens))

    @property
    def log_bytes(self) -> float:
        """Bytes a second of the log of appends on each node that keeps it. Rows of documents are not counted."""
        return self.append_tokens * token_dtype(self.vocab_size).itemsize

    @property
    def segments(self) -> int:
        """Segments of the whole datastore."""
        return -(-self.tokens // self.tokens_of_segment)


def amount(value: float) -> str:
    """A number with three digits and a decimal unit, such as 6.13T."""
    for unit, size in reversed(UNITS.items()):
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def size(value: float) -> str:
    """Bytes with three digits, such as 6.13 TB."""
    shown = amount(value)
    return f"{shown[:-1]} {shown[-1]}B" if shown[-1:].isalpha() else f"{shown} B"
