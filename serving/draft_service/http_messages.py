"""The draft service's HTTP messages: JSON bodies of requests and answers."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, FailFast, Field

from suffolk.datastore import retriever
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.merged import MAX_WEIGHT
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
    """A datastore to search, and its weight."""

    model_config = ConfigDict(strict=True, extra="forbid")
    name: str
    weight: Annotated[int, Field(ge=1, le=MAX_WEIGHT)] = 1


class LookupBody(BaseModel):
    """The keys of a lookup. Sizes and names are checked by ``DraftService``.

    ``datastores`` searches several datastores as one; ``datastore`` names a single one. ``group``: one for all contexts, or a list
    with one or null for each.
    """

    model_config = ConfigDict(strict=True, extra="forbid")
    contexts: Annotated[list[Annotated[list[Token], FailFast()]], FailFast()]
    datastore: str = ""
    datastores: list[ChoiceBody] = []
    group: str | list[str | None] | None = None
    scope: str = ""
    max_match: MatchLength = retriever.DEFAULT_MAX_MATCH
    min_match: MatchLength = retriever.DEFAULT_MIN_MATCH

    def request(self) -> draft_pb2.LookupRequest:
        return draft_pb2.LookupRequest(**self._fields())

    def _fields(self) -> dict[str, Any]:
        """The fields of a request but ``max_nodes``. Raises InvalidArgument if it names datastores in both ways."""
        if self.datastore and self.datastores:
            raise InvalidField(
                "datastore", f" is {self.datastore!r}, and datastores has names too; leave one of them out"
            )
        names = self.datastores or [ChoiceBody(name=self.datastore)]
        return self.model_dump(exclude={"contexts", "max_nodes", "datastore", "group"}) | {
            "groups": pack_groups(self.group) if self.group else (),
            "datastores": [draft_pb2.DatastoreChoice(name=each.name, weight=each.weight) for each in names],
            "contexts": np.array([token for context in self.contexts for token in context], TOKEN).tobytes(),
            "lengths": wire.pack_sizes(map(len, self.contexts)),
        }


class DraftBody(LookupBody):
    """The keys of a draft. ``max_nodes``: one number, or one per context."""

    max_depth: Annotated[int, Field(ge=1, le=limits.MAX_DEPTH)] = retriever.DEFAULT_MAX_DEPTH
    max_nodes: Nodes | list[Nodes] = retriever.DEFAULT_MAX_NODES

    def request(self) -> draft_pb2.DraftRequest:  # type: ignore[override]  # another message
        """Raises InvalidArgument if the lengths of ``max_nodes`` and ``contexts`` differ."""
        sizes = self.max_nodes if isinstance(self.max_nodes, list) else [self.max_nodes] * len(self.contexts)
        if len(sizes) != len(self.contexts):
            raise InvalidField(
                "max_nodes", f": give one whole number, or a list of {len(self.contexts)}, one for each context"
            )
        return draft_pb2.DraftRequest(max_nodes=wire.pack_sizes(sizes), **self._fields())


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
