"""HTTP/JSON routes that change or count the documents of live datastores.

    POST /v1/append  {"documents": [{"tokens": [1, 2]}, {"text": "one two", "id": "a.txt", "group": "g"}], "datastore": "chat"}
                     also "group": "g" for all documents, and "replace": true
    POST /v1/delete  {"ids": ["a.txt"]}, {"where": ["license=mit"]} or {"group": "g"}
    POST /v1/seal    {"datastore": "chat"}
    GET  /v1/stats   ?datastore=chat&group=g

"datastore" may be omitted if there is only one.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, FailFast, Field
from starlette.requests import Request

from suffolk.datastore.documents import Document
from suffolk.serving.draft_service import limits
from suffolk.serving.draft_service.documents import pack_documents
from suffolk.serving.draft_service.http_messages import Token
from suffolk.serving.draft_service.live_calls import LiveCalls
from suffolk.serving.proto import draft_pb2
from suffolk.serving.transport.http_body import InvalidField, parse_body


class StoreBody(BaseModel):
    """The name of a live datastore."""

    model_config = ConfigDict(strict=True, extra="forbid")
    datastore: str = ""


class DocumentBody(BaseModel):
    """A document to append: token ids or a text."""

    model_config = ConfigDict(strict=True, extra="forbid")
    tokens: Annotated[list[Token], FailFast()] = []
    text: str | None = None
    id: str | None = None
    metadata: dict[str, str | int | float | bool] = {}
    group: str | None = None


class AppendBody(StoreBody):
    """The keys of an append. ``group``: of all documents that name none."""

    documents: Annotated[list[DocumentBody], FailFast(), Field(max_length=limits.MAX_DOCUMENTS)]
    group: str | None = None
    replace: bool = False


class DeleteBody(StoreBody):
    """The keys of a deletion."""

    ids: list[str] = []
    where: list[str] = []
    group: str = ""


def append(calls: LiveCalls, request: Request, body: bytes) -> dict[str, Any]:
    found = parse_body(AppendBody, body)
    documents = [
        Document(each.id, each.metadata, _tokens(calls, found.datastore, index, each))
        for index, each in enumerate(found.documents)
    ]
    groups = [each.group or found.group or "" for each in found.documents]
    message = pack_documents(documents, groups if any(groups) else (), found.replace)
    message.datastore = found.datastore
    return asdict(calls.append(message))


def delete(calls: LiveCalls, request: Request, body: bytes) -> dict[str, Any]:
    return asdict(calls.delete(draft_pb2.DeleteRequest(**parse_body(DeleteBody, body).model_dump())))


def seal(calls: LiveCalls, request: Request, body: bytes) -> dict[str, Any]:
    return {"generation": calls.seal(parse_body(StoreBody, body or b"{}").datastore)}


def stats(calls: LiveCalls, request: Request, body: bytes) -> dict[str, Any]:
    return calls.stats(request.query_params.get("datastore", ""), request.query_params.get("group", ""))


def _tokens(calls: LiveCalls, name: str, index: int, document: DocumentBody) -> Any:
    if ("tokens" in document.model_fields_set) == (document.text is not None):
        raise InvalidField(f"documents[{index}]", ": give either tokens or text")
    return np.asarray(document.tokens if document.text is None else calls.encode(name, document.text), np.int32)
