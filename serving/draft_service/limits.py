"""The bounds of every field of the draft service, and the checks that both transports and the client share.

All checks raise InvalidArgument with the field, its value, the limit and what to do. They hold no state.
"""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.transport.limits import MAX_NAME, MAX_NODES, check_range

MAX_CONTEXT = 4096
"""Tokens of one context; only the last max_match of them are used."""
MAX_BATCH = 256
"""Queries of one request."""
MAX_DEPTH = 64
"""Tokens on the longest path of a draft tree."""
MAX_BATCH_NODES = 131_072
"""Nodes of all trees of one request: at 20 bytes a node they take 2.5 MiB."""
MAX_REQUEST_BYTES = 1 << 20
"""Size of one request, gRPC message or HTTP body."""
MAX_REPLY_BYTES = 16 << 20
"""Size of one reply. The largest is a tokenizer: of 256,000 tokens it takes about 5 MiB."""
MAX_TOKENIZER_BYTES = 128 << 20
"""Size of an unpacked tokenizer.json."""


def check_name(name: str) -> None:
    if len(name) > MAX_NAME:
        raise InvalidArgument(
            f"datastore: the name has {len(name)} characters; the limit is {MAX_NAME}; see GetInfo for the names"
        )


def check_match(max_match: int, min_match: int) -> None:
    check_range("max_match", max_match, 1, MAX_CONTEXT)
    check_range("min_match", min_match, 1, MAX_CONTEXT)
    if min_match > max_match:
        raise InvalidArgument(
            f"min_match is {min_match}, above max_match, {max_match}; lower min_match or raise max_match"
        )


def check_depth(max_depth: int) -> None:
    check_range("max_depth", max_depth, 1, MAX_DEPTH)


def check_batch(size: int) -> None:
    if size > MAX_BATCH:
        raise InvalidArgument(f"queries: the batch has {size}; the limit is {MAX_BATCH}; split it into several calls")


def check_context(place: int, size: int) -> None:
    if size > MAX_CONTEXT:
        raise InvalidArgument(
            f"queries[{place}].context has {size} tokens; the limit is {MAX_CONTEXT}; send only its last max_match"
        )


def check_nodes(budgets: Sequence[int]) -> None:
    for place, budget in enumerate(budgets):
        check_range(f"queries[{place}].max_nodes", budget, 0, MAX_NODES)
    if sum(budgets) > MAX_BATCH_NODES:
        raise InvalidArgument(
            f"queries: max_nodes add up to {sum(budgets)}; the limit is {MAX_BATCH_NODES}; lower them or split it"
        )
