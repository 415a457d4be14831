"""The methods of the draft service over HTTP: a JSON body in, a JSON value out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from suffolk.datastore import retriever
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.draft_service import limits
from suffolk.serving.draft_service.service import DraftService
from suffolk.serving.proto import draft_pb2
from suffolk.serving.transport.limits import MAX_NAME, check_range
from suffolk.serving.transport.tokens import pack_tokens, to_tokens

INTEGERS = {"max_match": limits.MAX_CONTEXT, "min_match": limits.MAX_CONTEXT, "max_depth": limits.MAX_DEPTH}
LOOKUP_KEYS = ("contexts", "datastore", "max_match", "min_match")
DRAFT_KEYS = (*LOOKUP_KEYS, "max_depth", "max_nodes")


def draft(service: DraftService, body: bytes) -> dict[str, Any]:
    fields = _fields(body, DRAFT_KEYS)
    contexts = _contexts(fields)
    sizes = _max_nodes(fields, len(contexts))
    queries = [draft_pb2.DraftQuery(context=each, max_nodes=size) for each, size in zip(contexts, sizes, strict=True)]
    request = draft_pb2.DraftRequest(queries=queries, **_settings(fields))
    return {"trees": [tree_json(tree) for tree in service.draft(request, _never_expires)]}


def lookup(service: DraftService, body: bytes) -> dict[str, Any]:
    fields = _fields(body, LOOKUP_KEYS)
    request = draft_pb2.LookupRequest(contexts=_contexts(fields), **_settings(fields))
    matches = service.lookup(request, _never_expires)
    return {"matches": [{"length": length, "count": count} for length, count in matches]}


def info(service: DraftService, body: bytes) -> dict[str, Any]:
    return {"datastores": service.info("")}


CALLS: dict[str, Callable[[DraftService, bytes], dict[str, Any]]] = {"Draft": draft, "Lookup": lookup, "GetInfo": info}


def tree_json(tree: DraftTree) -> dict[str, Any]:
    """A draft tree as lists and numbers."""
    return {
        "tokens": tree.tokens.tolist(),
        "parents": tree.parents.tolist(),
        "scores": [round(score, 6) for score in tree.scores.tolist()],
        "counts": [] if tree.counts is None else tree.counts.tolist(),
        "match_length": tree.match_length,
        "match_count": tree.match_count,
    }


def _fields(body: bytes, known: tuple[str, ...]) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"body: not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidArgument(f"body: a JSON {type(fields).__name__}; give an object with the keys {', '.join(known)}")
    for key in fields:
        if key not in known:
            raise InvalidArgument(f"{key[:MAX_NAME]}: unknown key; the keys are {', '.join(known)}")
    return fields


def _settings(fields: dict[str, Any]) -> dict[str, Any]:
    """The name of the datastore and the integers, as fields of a protobuf request."""
    name = fields.get("datastore", "")
    if not isinstance(name, str):
        raise InvalidArgument(f"datastore is a {type(name).__name__}; give its name as a string")
    integers = {key: fields[key] for key in INTEGERS if key in fields}
    for key, value in integers.items():
        check_range(key, _integer(key, value), 1, INTEGERS[key])
    return {"datastore": name, **integers}


def _integer(key: str, value: object) -> int:
    if type(value) is not int:  # isinstance accepts bool
        raise InvalidArgument(f"{key} is a {type(value).__name__}; give a whole number")
    return value


def _contexts(fields: dict[str, Any]) -> list[bytes]:
    contexts = fields.get("contexts")
    if not isinstance(contexts, list) or not all(isinstance(context, list) for context in contexts):
        raise InvalidArgument("contexts: give a list of lists of token ids")
    limits.check_batch(len(contexts))
    return [_context(index, context) for index, context in enumerate(contexts)]


def _context(index: int, ids: list[Any]) -> bytes:
    limits.check_context(index, len(ids))
    for token in ids:  # before numpy, which gives every element the size of the longest string
        if type(token) is not int:
            raise InvalidArgument(f"contexts[{index}] has a {type(token).__name__} in it; give a flat list of integers")
    return pack_tokens(to_tokens(ids, f"contexts[{index}]"))


def _max_nodes(fields: dict[str, Any], size: int) -> list[int]:
    found = fields.get("max_nodes", retriever.DEFAULT_MAX_NODES)
    if not isinstance(found, list):
        found = [_integer("max_nodes", found)] * size
    if len(found) != size or not all(type(each) is int for each in found):
        raise InvalidArgument(f"max_nodes: give one whole number, or {size}, one per context")
    limits.check_nodes(found)
    return found


def _never_expires() -> bool:
    """HTTP has no deadline; the limits of a request bound its work."""
    return False
