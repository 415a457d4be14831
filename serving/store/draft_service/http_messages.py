"""The draft service's HTTP messages: JSON bodies of requests and answers, with texts for callers without a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import FailFast, Field

from suffolk.datastore import context_query, limits
from suffolk.datastore.context_query import ContextQuery, OccurrenceQuery, Tokens
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.merged import MAX_WEIGHT
from suffolk.datastore.retriever import MAX_NODES
from suffolk.datastore.tokenizer import node_texts, window_texts
from suffolk.datastore.tree_paths import Paths, path_counts, tree_paths
from suffolk.serving.net.http_body import InvalidField
from suffolk.serving.net.json_fields import OR_NULL, Int, NullsBody
from suffolk.serving.net.messages.choices import DatastoreChoice
from suffolk.serving.net.tokens import TOKEN
from suffolk.serving.store.draft_service.service import DraftService, Expired

Token = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
MatchLength = Annotated[Int, Field(ge=1, le=limits.MAX_CONTEXT), OR_NULL]
Nodes = Annotated[Int, Field(ge=0, le=MAX_NODES)]
Name = Annotated[str, OR_NULL]
Switch = Annotated[bool, OR_NULL]
TokenIds = Annotated[list[Token], FailFast()]


class ChoiceBody(NullsBody):
    """A datastore to search, its weight, and its group: one for all contexts, or a list with a group or null for each context."""

    name: str
    weight: Annotated[Int, Field(ge=1, le=MAX_WEIGHT), OR_NULL] = 1
    group: str | list[str | None] | None = None


class StoresBody(NullsBody):
    """``datastores`` searches several datastores as one; ``datastore`` names a single one."""

    datastore: Name = ""
    datastores: Annotated[list[ChoiceBody], OR_NULL] = []

    def choices(self) -> list[DatastoreChoice]:
        """Raises InvalidArgument if datastores are named in both ways."""
        if self.datastore and self.datastores:
            raise InvalidField(
                "datastore", f" is {self.datastore!r}, and datastores has names too; leave one of them out"
            )
        named = [DatastoreChoice(each.name, each.weight, each.group) for each in self.datastores]
        return named or [DatastoreChoice(self.datastore)]


class LookupBody(StoresBody):
    """The keys of a lookup. Sizes and names are checked by ``DraftService``.

    ``text`` is a single context, which the server encodes. ``group``: a group for all contexts, or a list with a group or null
    for each.
    """

    contexts: Annotated[list[TokenIds], FailFast(), OR_NULL] = []
    text: str | None = None
    group: str | list[str | None] | None = None
    scope: Name = ""
    max_match: MatchLength = context_query.DEFAULT_MAX_MATCH
    min_match: MatchLength = context_query.DEFAULT_MIN_MATCH

    def query(self) -> ContextQuery:
        contexts = [np.array(context, TOKEN) for context in self.contexts]
        return ContextQuery(contexts, self.max_match, self.min_match, group=self.group, scope=self.scope or None)


class DraftBody(LookupBody):
    """The keys of a draft.

    ``max_nodes``: one number, or one per context. ``texts``: add the text of each node. ``by_datastore``: add the count of each
    node in each datastore.
    """

    max_depth: Annotated[Int, Field(ge=1, le=limits.MAX_DEPTH), OR_NULL] = context_query.DEFAULT_MAX_DEPTH
    max_nodes: Annotated[Nodes | list[Nodes], OR_NULL] = context_query.DEFAULT_MAX_NODES
    least_counts: Annotated[list[Annotated[Int, Field(ge=0, lt=1 << 64)]], OR_NULL] = []
    texts: Switch = False
    by_datastore: Switch = False

    def query(self) -> ContextQuery:
        """Raises InvalidArgument if there are too many nodes for ``texts`` or ``by_datastore``."""
        found = (
            super().query()._replace(max_depth=self.max_depth, max_nodes=self.max_nodes, least_counts=self.least_counts)
        )
        if self.texts or self.by_datastore:
            limits.check_described_nodes(sum(found.budgets))
        return found


class TreeBody(NullsBody):
    """Continuations of one context as the columns of a tree."""

    tokens: TokenIds
    parents: TokenIds


class CountBody(StoresBody):
    """The keys of a call that counts continuations: ``trees`` has one for each of ``contexts``."""

    contexts: Annotated[list[TokenIds], FailFast()]
    trees: list[TreeBody]

    def paths(self) -> list[Paths]:
        """Raises InvalidArgument if there is not one tree for each context, or its columns differ in length."""
        if len(self.trees) != len(self.contexts):
            text = f": {len(self.trees)} trees for {len(self.contexts)} contexts; give one for each context"
            raise InvalidField("trees", text)
        for index, tree in enumerate(self.trees):
            if len(tree.tokens) != len(tree.parents):
                raise InvalidField(f"trees[{index}]", ": tokens and parents differ in length; give one parent a node")
        return [Paths(np.array(tree.tokens, TOKEN), np.array(tree.parents, TOKEN)) for tree in self.trees]


class OccurrencesBody(StoresBody):
    """The keys of a search for occurrences. ``texts``: add the text of each occurrence."""

    tokens: Annotated[TokenIds, OR_NULL] = []
    text: str | None = None
    limit: Annotated[Int, OR_NULL] = context_query.DEFAULT_OCCURRENCES
    context: Annotated[Int, OR_NULL] = context_query.DEFAULT_WINDOW
    before: Annotated[Int, OR_NULL] = 0
    group: Name = ""
    scope: Name = ""
    texts: Switch = False

    def query(self) -> OccurrenceQuery:
        pattern = np.array(self.tokens, TOKEN)
        return OccurrenceQuery(pattern, self.limit, self.context, self.before, self.group or None, self.scope or None)


def require_one(body: NullsBody, field: str) -> None:
    """Raise InvalidArgument unless ``body`` has either ``field`` or a text."""
    if (field in body.model_fields_set) == ("text" in body.model_fields_set):
        raise InvalidField(field, f": give either {field} or text")


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
    """What ``body`` asks for: the text of each node, and counts in each datastore. Raises the errors of ``path_counts``."""
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
    """What ``body`` asks for: the text of each occurrence before its pattern, of the pattern, and after it."""
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
