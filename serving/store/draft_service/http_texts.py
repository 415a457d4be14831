"""Texts in the HTTP messages of the draft service, for callers without a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suffolk.datastore import limits
from suffolk.datastore.context_query import Tokens
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.tokenizer import node_texts, window_texts
from suffolk.datastore.tree_paths import path_counts, tree_paths
from suffolk.serving.net.messages.choices import DatastoreChoice
from suffolk.serving.store.draft_service.http_messages import DraftBody, LookupBody, OccurrencesBody, require_one
from suffolk.serving.store.draft_service.service import DraftService, Expired


def encode_context(service: DraftService, body: LookupBody, expired: Expired) -> dict[str, Any]:
    """Make the text of ``body``, if it has one, its only context.

    Returns:
        For the answer: the tokens, and the place of each token's first character in the text. Empty without a text.
    """
    require_one(body, "contexts")
    if body.text is None:
        return {}
    ids, starts = _encode(service, body.choices(), body.text, expired)
    body.contexts = [ids[-limits.MAX_CONTEXT :]]
    return {"context": {"tokens": body.contexts[0], "starts": starts[-limits.MAX_CONTEXT :]}}


def encode_pattern(service: DraftService, body: OccurrencesBody, expired: Expired) -> None:
    """Make the text of ``body``, if it has one, its pattern."""
    require_one(body, "tokens")
    if body.text is not None:
        body.tokens = _encode(service, body.choices(), body.text, expired)[0]


def describe_tree(
    service: DraftService, body: DraftBody, context: Tokens, tree: DraftTree, expired: Expired
) -> dict[str, Any]:
    """What ``body`` asks for: the text of each node, and counts in each datastore. Raises as ``path_counts``."""
    found: dict[str, Any] = {}
    if body.texts:
        found["texts"] = node_texts(service.chosen(body.choices(), expired), context, tree)
    if body.by_datastore:
        match, paths = list(context[len(context) - tree.match_length :]), tree_paths(tree)
        found["datastores"] = {}
        for name in service.weights(body.choices()):
            store = service.chosen([DatastoreChoice(name)], expired)
            count, *counts = path_counts(store, match, [[], *paths], expired) if match else [0]
            found["datastores"][name] = {"match_count": count, "counts": counts}
    return found


def describe_occurrences(
    service: DraftService, body: OccurrencesBody, places: Sequence[Occurrence], expired: Expired
) -> list[dict[str, Any]]:
    """What ``body`` asks for: the text of each occurrence before its pattern, of the pattern, and behind it."""
    if not body.texts:
        return [{} for _ in places]
    store = service.chosen(body.choices(), expired)
    parts = [window_texts(store, place, len(body.tokens)) for place in places]
    return [{"texts": dict(zip(("before", "match", "after"), each, strict=True))} for each in parts]


def _encode(
    service: DraftService, choices: Sequence[DatastoreChoice], text: str, expired: Expired
) -> tuple[list[int], list[int]]:
    limits.check_text(text)
    return service.chosen(choices, expired).encode_with_starts(text)
