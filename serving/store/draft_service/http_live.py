"""HTTP/JSON routes that change or count the documents of live datastores.

    POST /v1/append  {"documents": [{"tokens": [1, 2]}, {"text": "one two", "id": "a.txt", "group": "g"}], "datastore": "chat"}
                     also "group": "g" for all documents, "replace": true, and "key": "a1" so that a repeat changes nothing
    GET  /v1/document ?datastore=chat&id=a.txt
    POST /v1/delete  {"ids": ["a.txt"]}, {"where": ["license=mit"]} or {"group": "g"}
    POST /v1/flush    {"datastore": "chat"}
    GET  /v1/stats   ?datastore=chat&group=g

"datastore" may be omitted if there is only one.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, FailFast, Field
from starlette.requests import Request

from suffolk.datastore import limits
from suffolk.datastore.documents import Document
from suffolk.serving.net.http_body import InvalidField, parse_body
from suffolk.serving.net.json_fields import OR_NULL, NullsBody
from suffolk.serving.store.draft_service.http_messages import Name, Switch, TokenIds
from suffolk.serving.store.draft_service.live_calls import Append, LiveCalls


class StoreBody(NullsBody):
    """The name of a live datastore."""

    datastore: Name = ""


def _without_nulls(metadata: Any) -> Any:
    """``metadata`` without its null values, as in a build; an empty one for null."""
    given = {} if metadata is None else metadata
    return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given


class DocumentBody(NullsBody):
    """A document to append: token ids or a text."""

    tokens: Annotated[TokenIds, OR_NULL] = []
    text: str | None = None
    id: str | None = None
    metadata: Annotated[dict[str, str | int | float | bool], BeforeValidator(_without_nulls)] = {}
    group: str | None = None


class AppendBody(StoreBody):
    """The keys of an append. ``group``: the group of all documents that name no group."""

    documents: Annotated[list[DocumentBody], FailFast(), Field(max_length=limits.MAX_DOCUMENTS)]
    group: str | None = None
    replace: Switch = False
    key: Name = ""


class DeleteBody(StoreBody):
    """The keys of a deletion."""

    ids: Annotated[list[str], OR_NULL] = []
    where: Annotated[list[str], OR_NULL] = []
    group: Name = ""


def read_append(data: bytes) -> tuple[AppendBody, list[npt.NDArray[Any] | None]]:
    """The body, and the token ids of each document; None for a text. This parsing is the larger part of the time of an append."""
    body = parse_body(AppendBody, data)
    return body, [token_array(each, f"documents[{index}]") for index, each in enumerate(body.documents)]


def token_array(document: DocumentBody, field: str) -> npt.NDArray[Any] | None:
    """The token ids of a document; None if it is a text. Raises InvalidField unless it has one of the two. ``field``: the
    document's name."""
    if ("tokens" in document.model_fields_set) == (document.text is not None):
        raise InvalidField(field, ": give either tokens or text")
    return np.array(document.tokens, np.int32) if document.text is None else None


def append(
    calls: LiveCalls, request: Request, found: tuple[AppendBody, list[npt.NDArray[Any] | None]]
) -> dict[str, Any]:
    body, tokens = found
    documents = [
        Document(
            each.id, each.metadata, np.array(calls.encode(body.datastore, each.text or "")) if ids is None else ids
        )
        for each, ids in zip(body.documents, tokens, strict=True)
    ]
    groups = [each.group or body.group or None for each in body.documents]
    made = Append(documents, groups if any(groups) else None, body.replace, body.key or None)
    return asdict(calls.append(body.datastore, made))


def get(calls: LiveCalls, request: Request, found: None) -> dict[str, Any]:
    query = request.query_params
    return asdict(calls.get(query.get("datastore", ""), query.get("id", "")))


def delete(calls: LiveCalls, request: Request, found: DeleteBody) -> dict[str, Any]:
    return asdict(calls.delete(found.datastore, found.ids, found.where, found.group))


def read_flush(data: bytes) -> StoreBody:
    return parse_body(StoreBody, data or b"{}")


def flush(calls: LiveCalls, request: Request, found: StoreBody) -> dict[str, Any]:
    return {"generation": calls.flush(found.datastore)}


def stats(calls: LiveCalls, request: Request, found: None) -> dict[str, Any]:
    return calls.stats(request.query_params.get("datastore", ""), request.query_params.get("group", ""))
