"""Reads requests of the draft service (draft.proto) as queries and documents."""

from __future__ import annotations

from typing import Any

from suffolk.datastore import context_query
from suffolk.datastore.context_query import ContextQuery, OccurrenceQuery
from suffolk.serving.net.messages import columns
from suffolk.serving.net.messages.documents import unpack_documents, unpack_groups
from suffolk.serving.net.proto import draft_pb2
from suffolk.serving.net.tokens import unpack_tokens
from suffolk.serving.store.draft_service.live_calls import Append


def draft_query(request: draft_pb2.DraftRequest) -> ContextQuery:
    """Raises InvalidArgument: a column is malformed."""
    return lookup_query(request)._replace(
        max_depth=_value_or(request, "max_depth", context_query.DEFAULT_MAX_DEPTH),
        max_nodes=columns.unpack_max_nodes(request.max_nodes),
        least_counts=columns.unpack_least_counts(request.least_counts),
    )


def lookup_query(request: draft_pb2.DraftRequest | draft_pb2.LookupRequest) -> ContextQuery:
    """Raises InvalidArgument: a column is malformed."""
    return ContextQuery(
        columns.unpack_contexts(request),
        _value_or(request, "max_match", context_query.DEFAULT_MAX_MATCH),
        _value_or(request, "min_match", context_query.DEFAULT_MIN_MATCH),
        group=list(request.groups),
        scope=request.scope or None,
    )


def occurrence_query(request: draft_pb2.OccurrencesRequest) -> OccurrenceQuery:
    """Raises InvalidArgument: the pattern is malformed."""
    return OccurrenceQuery(
        unpack_tokens(request.pattern, "pattern"),
        _value_or(request, "limit", context_query.DEFAULT_OCCURRENCES),
        _value_or(request, "context", context_query.DEFAULT_WINDOW),
        request.before,
        request.group or None,
        request.scope or None,
    )


def unpack_append(request: draft_pb2.AppendRequest) -> Append:
    """Raises InvalidArgument: a column is malformed, or there are too many documents."""
    documents = unpack_documents(request)
    groups = unpack_groups(request.groups, len(documents), "documents")
    return Append(documents, groups, request.replace, request.key or None)


def _value_or(message: Any, field: str, default: int) -> int:
    """The field's value, or ``default`` if it is unset."""
    return getattr(message, field) if message.HasField(field) else default
