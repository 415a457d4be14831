"""The draft service's HTTP messages: JSON bodies of requests and answers."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, FailFast, Field

from suffolk.datastore import context_query
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.merged import MAX_WEIGHT
from suffolk.datastore.occurrence import Occurrence
from suffolk.serving.draft_service import limits, wire
from suffolk.serving.draft_service.documents import pack_groups
from suffolk.serving.proto import draft_pb2
from suffolk.serving.transport.http_body import InvalidField
from suffolk.serving.transport.limits import MAX_NODES
from suffolk.serving.transport.tokens import TOKEN

Token = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
MatchLength = Annotated[int, Field(ge=1, le=limits.MAX_CONTEXT)]
Nodes = Annotated[int, Field(ge=0, le=MAX_NODES)]


class ChoiceBody(BaseModel):
    """A datastore to search, its weight, and its group of all contexts, or a list with one or null for each."""

    model_config = ConfigDict(strict=True, extra="forbid")
    name: str
    weight: Annotated[int, Field(ge=1, le=MAX_WEIGHT)] = 1
    group: str | list[str | None] | None = None

    def message(self) -> draft_pb2.DatastoreChoice:
        groups = pack_groups(self.group) if self.group else ()
        return draft_pb2.DatastoreChoice(name=self.name, weight=self.weight, groups=groups)


class StoresBody(BaseModel):
    """``datastores`` searches several datastores as one; ``datastore`` names a single one."""

    model_config = ConfigDict(strict=True, extra="forbid")
    datastore: str = ""
    datastores: list[ChoiceBody] = []

    def choices(self) -> list[draft_pb2.DatastoreChoice]:
        """Raises InvalidArgument if datastores are named in both ways."""
        if self.datastore and self.datastores:
            raise InvalidField(
                "datastore", f" is {self.datastore!r}, and datastores has names too; leave one of them out"
            )
        names = self.datastores or [ChoiceBody(name=self.datastore)]
        return [each.message() for each in names]


class LookupBody(StoresBody):
    """The keys of a lookup. Sizes and names are checked by ``DraftService``.

    ``text`` is a single context, which the server encodes. ``group``: one for all contexts, or a list with one or null for each.
    """

    contexts: Annotated[list[Annotated[list[Token], FailFast()]], FailFast()] = []
    text: str | None = None
    group: str | list[str | None] | None = None
    scope: str = ""
    max_match: MatchLength = context_query.DEFAULT_MAX_MATCH
    min_match: MatchLength = context_query.DEFAULT_MIN_MATCH

    def request(self) -> draft_pb2.LookupRequest:
        return draft_pb2.LookupRequest(**self._fields("max_match", "min_match"))

    def _fields(self, *names: str) -> dict[str, Any]:
        """The fields of a request: those of ``names``, and what all requests have. Raises as ``choices``."""
        return {name: getattr(self, name) for name in names} | {
            "groups": pack_groups(self.group) if self.group else (),
            "scope": self.scope,
            "datastores": self.choices(),
            "contexts": np.array([token for context in self.contexts for token in context], TOKEN).tobytes(),
            "lengths": wire.pack_sizes(map(len, self.contexts)),
        }


class DraftBody(LookupBody):
    """The keys of a draft.

    ``max_nodes``: one number, or one per context. ``texts``: add the text of each node. ``by_datastore``: add its count in each
    datastore.
    """

    max_depth: Annotated[int, Field(ge=1, le=limits.MAX_DEPTH)] = context_query.DEFAULT_MAX_DEPTH
    max_nodes: Nodes | list[Nodes] = context_query.DEFAULT_MAX_NODES
    least_counts: list[Annotated[int, Field(ge=0, lt=1 << 64)]] = []
    texts: bool = False
    by_datastore: bool = False

    def request(self) -> draft_pb2.DraftRequest:  # type: ignore[override]  # another message
        """Raises InvalidArgument if the lengths of ``max_nodes`` and ``contexts`` differ, or nodes with texts are too many."""
        sizes = self.max_nodes if isinstance(self.max_nodes, list) else [self.max_nodes] * len(self.contexts)
        if len(sizes) != len(self.contexts):
            raise InvalidField(
                "max_nodes", f": give one whole number, or a list of {len(self.contexts)}, one for each context"
            )
        if self.texts or self.by_datastore:
            limits.check_described_nodes(sum(sizes))
        fields = self._fields("max_match", "min_match", "max_depth")
        least = wire.pack_least_counts(self.least_counts)
        return draft_pb2.DraftRequest(max_nodes=wire.pack_sizes(sizes), least_counts=least, **fields)


class TreeBody(BaseModel):
    """Continuations of one context as the columns of a tree."""

    model_config = ConfigDict(strict=True, extra="forbid")
    tokens: Annotated[list[Token], FailFast()]
    parents: Annotated[list[Token], FailFast()]


class CountBody(StoresBody):
    """The keys of a call that counts continuations: ``trees`` has one for each of ``contexts``."""

    contexts: Annotated[list[Annotated[list[Token], FailFast()]], FailFast()]
    trees: list[TreeBody]

    def request(self) -> draft_pb2.CountRequest:
        for index, tree in enumerate(self.trees):
            if len(tree.tokens) != len(tree.parents):
                raise InvalidField(f"trees[{index}]", ": tokens and parents differ in length; give one parent a node")
        return draft_pb2.CountRequest(
            datastores=self.choices(),
            contexts=np.array([token for context in self.contexts for token in context], TOKEN).tobytes(),
            lengths=wire.pack_sizes(map(len, self.contexts)),
            tokens=np.array([token for tree in self.trees for token in tree.tokens], TOKEN).tobytes(),
            parents=np.array([parent for tree in self.trees for parent in tree.parents], TOKEN).tobytes(),
            sizes=wire.pack_sizes(len(tree.tokens) for tree in self.trees),
        )


class OccurrencesBody(StoresBody):
    """The keys of a search for occurrences. ``texts``: add the text of each occurrence."""

    tokens: Annotated[list[Token], FailFast()] = []
    text: str | None = None
    limit: int = context_query.DEFAULT_OCCURRENCES
    context: int = context_query.DEFAULT_WINDOW
    before: int = 0
    group: str = ""
    scope: str = ""
    texts: bool = False

    def request(self) -> draft_pb2.OccurrencesRequest:
        """Raises InvalidArgument if a number is out of range, or datastores are named in both ways."""
        limits.check_occurrences(self.limit, self.context, self.before)
        return draft_pb2.OccurrencesRequest(
            datastores=self.choices(),
            pattern=np.array(self.tokens, TOKEN).tobytes(),
            limit=self.limit,
            context=self.context,
            before=self.before,
            group=self.group,
            scope=self.scope,
        )


def require_one(body: BaseModel, field: str) -> None:
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


def occurrence_json(place: Occurrence) -> dict[str, Any]:
    """An occurrence as texts, lists and numbers."""
    return {
        "datastore": place.datastore,
        "segment": place.segment,
        "document": place.document,
        "offset": place.offset,
        "id": place.source,
        "metadata": dict(place.metadata),
        "tokens": place.tokens.tolist(),
        "before": place.before.tolist(),
    }
