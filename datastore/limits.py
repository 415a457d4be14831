"""Limits of requests to a remote datastore.

The service checks all limits. A client checks only those without which it cannot encode a request.

Checks raise InvalidArgument with the field, its value, the limit and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suffolk.datastore import _native
from suffolk.datastore.arguments import check_size
from suffolk.datastore.checks import check_choice, check_range
from suffolk.datastore.context_query import SCOPES, ContextQuery, Tokens
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.retriever import MAX_NODES
from suffolk.datastore.tree_paths import Paths

MAX_NAME = 128
"""Characters of the name of a datastore, a drafter or a role."""
MAX_CONTEXT = 4096
"""Tokens of one context. Only the last ``max_match`` tokens are used."""
MAX_BATCH = 256
"""Queries of one request."""
MAX_DEPTH = 64
"""Tokens on the longest path of a draft tree."""
MAX_BATCH_NODES = 131_072
"""Nodes of all trees of one request: 2.5 MiB at 20 bytes per node."""
MAX_OCCURRENCES = 64
"""Occurrences of one request. For each occurrence, a block of a document table is read."""
MAX_WINDOW = 256
"""Tokens on one side of an occurrence."""
MAX_TEXT = 16_384
"""Characters of a text in place of tokens. Encoding it takes some milliseconds."""
MAX_LISTED_NODES = 16_384
"""Nodes of the tree of a query with ``least_counts``."""
MAX_COUNTED_NODES = 65_536
"""Continuations to count in one request. Each is a lookup of some microseconds."""
MAX_DESCRIBED_NODES = 1024
"""Nodes of all trees of one HTTP request that asks for their texts, or for their counts in each datastore."""
MAX_REQUEST_BYTES = 4 << 20
"""Size of one request, gRPC message or HTTP body: a million tokens to append."""
MAX_DOCUMENTS = 65_536
"""Documents of one append."""
MAX_REPLY_BYTES = 16 << 20
"""Size of one reply. The largest reply is a tokenizer: 256,000 tokens take about 5 MiB."""
MAX_TOKENIZER_BYTES = 128 << 20
"""Size of a decompressed tokenizer.json."""


def check_query(query: ContextQuery) -> None:
    """Check a lookup or draft, except for its groups."""
    check_numbers(query)
    check_contexts(query.contexts)
    check_scope(query.scope)


def check_numbers(query: ContextQuery) -> None:
    """Check the numbers of a lookup or draft."""
    contexts, budgets, least = query.contexts, query.budgets, query.least_counts
    check_match(query.max_match, query.min_match)
    check_range("max_depth", query.max_depth, 1, MAX_DEPTH)
    if len(budgets) != len(contexts):
        text = f" has {len(budgets)} entries for {len(contexts)} contexts; give one, or one for each context"
        raise InvalidArgument(Field("max_nodes"), text)
    check_nodes(budgets, bool(least))
    if least and len(least) != len(contexts):
        text = f" has {len(least)} entries for {len(contexts)} contexts; give one each, or none"
        raise InvalidArgument(Field("least_counts"), text)


def check_paths(contexts: Sequence[Tokens], trees: Sequence[Paths]) -> None:
    """Check the sizes and forms of continuations to count."""
    check_contexts(contexts)
    check_size(
        "tokens: the trees",
        sum(len(tree.tokens) for tree in trees),
        MAX_COUNTED_NODES,
        "nodes",
        "split it into several calls",
    )
    for index, (_, parents) in enumerate(trees):
        if len(parents) and not np.all((parents >= -1) & (parents < np.arange(len(parents)))):
            raise InvalidArgument(f"parents: a node of tree {index} precedes its parent; put parents first")
        # This check comes before the paths are built, because paths of deep trees need much memory.
        check_range("max_depth", int(_native.tree_depths(parents).max(initial=1)), 1, MAX_DEPTH)


def check_name(name: str) -> None:
    check_size("datastore: the name", len(name), MAX_NAME, "characters", "see GetInfo for the names")


def check_match(max_match: int, min_match: int) -> None:
    check_range("max_match", max_match, 1, MAX_CONTEXT)
    check_range("min_match", min_match, 1, MAX_CONTEXT)
    if min_match > max_match:
        raise InvalidArgument(
            Field("min_match"),
            f" is {min_match}, above ",
            Field("max_match"),
            f", {max_match}; lower ",
            Field("min_match"),
            " or raise ",
            Field("max_match"),
        )


def check_occurrences(limit: int, context: int, before: int) -> None:
    check_range("limit", limit, 0, MAX_OCCURRENCES)
    check_range("context", context, 0, MAX_WINDOW)
    check_range("before", before, 0, MAX_WINDOW)


def check_text(text: str) -> None:
    check_size("text", len(text), MAX_TEXT, "characters", "send only its end, or token ids")


def check_batch(size: int) -> None:
    check_size("contexts: the batch", size, MAX_BATCH, "queries", "split it into several calls")


def check_contexts(contexts: Sequence[Tokens]) -> None:
    check_batch(len(contexts))
    for index, context in enumerate(contexts):
        check_size(f"contexts[{index}]", len(context), MAX_CONTEXT, "tokens", "send only its last max_match")


def check_nodes(max_nodes: Sequence[int], listed: bool = False) -> None:
    """Check the sizes of draft trees. ``listed``: whether the query has ``least_counts``."""
    for index, size in enumerate(max_nodes):
        check_range(f"max_nodes[{index}]", size, 0, MAX_LISTED_NODES if listed else MAX_NODES)
    if sum(max_nodes) > MAX_BATCH_NODES:
        raise InvalidArgument(
            Field("max_nodes"), f" add up to {sum(max_nodes)}; the limit is {MAX_BATCH_NODES}; lower them or split it"
        )


def check_described_nodes(nodes: int) -> None:
    if nodes > MAX_DESCRIBED_NODES:
        raise InvalidArgument(
            Field("max_nodes"),
            f" add up to {nodes}; the limit with texts or by_datastore is {MAX_DESCRIBED_NODES}; lower them or split it",
        )


def check_grouped(scope: str | None, groups: Sequence[object]) -> None:
    """Raise InvalidArgument if only groups are searched and a context has no group. ``groups``: empty if no context has one."""
    if scope == "group" and not (groups and all(groups)):
        text = " is 'group', and a context has no group; name one for each context, or leave scope out"
        raise InvalidArgument(Field("scope"), text)


def check_scope(scope: str | None) -> None:
    if scope is not None:
        check_choice("scope", scope, SCOPES)
