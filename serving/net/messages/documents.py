"""Packs documents to append as columns (draft.proto), and validates columns that were received."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from suffolk.datastore import limits
from suffolk.datastore.arguments import check_size
from suffolk.datastore.documents import NO_METADATA, Document, Metadata
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.net.messages import columns
from suffolk.serving.net.proto import draft_pb2
from suffolk.serving.net.tokens import to_tokens


def pack_documents(documents: Sequence[Document], groups: Sequence[str], replace: bool) -> draft_pb2.AppendRequest:
    """A request without the name of the datastore. ``groups``: empty, one for all documents, or one for each; "" is no group.

    Raises:
        InvalidArgument: a document's tokens are not integers, its metadata is not JSON, or all documents together are
            too large.
    """
    tokens = [to_tokens(each.tokens, f"documents[{index}]") for index, each in enumerate(documents)]
    request = draft_pb2.AppendRequest(
        tokens=columns.pack_tokens(tokens),
        lengths=columns.pack_sizes(map(len, tokens)),
        ids=[each.source or "" for each in documents] if any(each.source for each in documents) else (),
        metadata=[dump_metadata(each.metadata) for each in documents]
        if any(each.metadata for each in documents)
        else (),
        groups=groups,
        replace=replace,
    )
    if (size := request.ByteSize()) > limits.MAX_REQUEST_BYTES - 1024:
        raise InvalidArgument(
            f"documents: {size} bytes in one call; the limit is {limits.MAX_REQUEST_BYTES - 1024}; append them in several calls, "
            "or with append_stream"
        )
    return request


def unpack_documents(request: draft_pb2.AppendRequest) -> list[Document]:
    """The documents of a request; their tokens are not copied.

    Raises:
        InvalidArgument: a column is malformed, or there are too many documents.
    """
    tokens = columns.unpack_parts(request.tokens, request.lengths, "tokens")
    check_size("documents: the batch", len(tokens), limits.MAX_DOCUMENTS, "documents", "append them in several calls")
    ids, metadata = (
        _each(field, values, len(tokens)) for field, values in (("ids", request.ids), ("metadata", request.metadata))
    )
    return [
        Document(each or None, load_metadata(entry, f"metadata[{index}]"), part.astype(np.int64))
        for index, (part, each, entry) in enumerate(zip(tokens, ids, metadata, strict=True))
    ]


def unpack_groups(groups: Sequence[str], size: int, unit: str) -> list[str | None] | None:
    """A group or None for each of ``size`` documents or contexts; None if there are no groups at all."""
    if not any(groups):
        return None
    if len(groups) not in (1, size):
        raise InvalidArgument(f"groups has {len(groups)} entries for {size} {unit}; give one, or one for each")
    return [group or None for group in (groups if len(groups) == size else list(groups) * size)]


def pack_groups(group: str | Sequence[str | None] | None) -> list[str]:
    """The inverse of ``unpack_groups``."""
    return [group or ""] if group is None or isinstance(group, str) else [each or "" for each in group]


def _each(field: str, values: Sequence[str], size: int) -> Sequence[str]:
    if values and len(values) != size:
        raise InvalidArgument(
            Field(field), f" has {len(values)} entries for {size} documents; give one for each, or none"
        )
    return values or [""] * size


def dump_metadata(metadata: Metadata) -> str:
    """``metadata`` as JSON; empty without any. Raises InvalidArgument if it has no JSON form."""
    if not metadata:
        return ""
    try:
        return json.dumps(dict(metadata), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"metadata cannot be sent: {error}; use texts, finite numbers and booleans") from None


def load_metadata(text: str, field: str) -> Metadata:
    """The inverse of ``dump_metadata``. Raises InvalidArgument, naming ``field``, for other text."""
    if not text:
        return NO_METADATA
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(Field(field), f" is {text[:60]!r}; it must be a JSON object")
    return found
