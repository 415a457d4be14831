"""The arguments of lookups, drafts and occurrences, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from suffolk.datastore.arguments import check_contexts, check_groups, check_text, whole_numbers
from suffolk.datastore.checks import check_choice, check_range, whole_number
from suffolk.datastore.errors import Field, InvalidArgument

Tokens = Sequence[int] | npt.NDArray[np.integer[Any]]
"""Token ids, oldest first: a list of ints or a one-dimensional integer array."""
Groups = str | Sequence[str | None] | None
"""One group for all contexts or documents, or a list with a group for each of them. None means no group."""
StoreGroups = Groups | Mapping[str, Groups]
"""``Groups`` of one datastore. If several datastores are searched as one: a map from their names to ``Groups``."""

SCOPES = ("store", "group", "group_first")
"""What a query searches: all documents, the documents of its group, or its group first and then all documents."""
DEFAULT_MAX_MATCH = 16
DEFAULT_MIN_MATCH = 1
DEFAULT_MAX_DEPTH = 10
DEFAULT_MAX_NODES = 64
DEFAULT_OCCURRENCES = 10
DEFAULT_WINDOW = 16
"""Default number of tokens shown after an occurrence."""
MAX_OCCURRENCES = (1 << 32) - 2
"""The largest number of tokens in a segment, so of occurrences in it."""


class ContextQuery(NamedTuple):
    """The arguments of ``Retriever.draft_batch``, in its order. A lookup ignores ``max_depth`` and ``max_nodes``.

    Attributes:
        least_counts: for each context, the least number of occurrences of a node of its draft; empty for no limit.
        patience: seconds that an answer is worth waiting for. A remote datastore whose deadline nobody has set waits this long if
            this is longer than its default.
    """

    contexts: Sequence[Tokens]
    max_match: int = DEFAULT_MAX_MATCH
    min_match: int = DEFAULT_MIN_MATCH
    max_depth: int = DEFAULT_MAX_DEPTH
    max_nodes: int | Sequence[int] = DEFAULT_MAX_NODES
    group: StoreGroups = None
    scope: str | None = None
    least_counts: Sequence[int] = ()
    patience: float = 0.0

    def checked(self) -> ContextQuery:
        """The query with numbers as ints. Raises InvalidArgument for an argument of a wrong type."""
        contexts, max_match, min_match, max_depth, max_nodes, group, scope, least_counts, patience = self
        check_contexts(contexts)
        if group is not None:
            for groups in group.values() if isinstance(group, Mapping) else [group]:
                check_groups(groups)
        if scope is not None:
            check_text("scope", scope)
        return ContextQuery(
            contexts,
            whole_number("max_match", max_match),
            whole_number("min_match", min_match),
            whole_number("max_depth", max_depth),
            whole_numbers("max_nodes", max_nodes),
            group,
            scope,
            least_counts,
            patience,
        )

    @property
    def budgets(self) -> list[int]:
        """``max_nodes`` of each context."""
        return [self.max_nodes] * len(self.contexts) if isinstance(self.max_nodes, int) else list(self.max_nodes)

    @property
    def groups(self) -> list[str | None]:
        """The group of each context. Raises InvalidArgument if groups are given by datastore."""
        if isinstance(self.group, Mapping):
            raise InvalidArgument(
                Field("group"), " is a dict, for several datastores searched as one; give a text, or a list of texts"
            )
        return _of_each(self.group, len(self.contexts))

    @property
    def has_group(self) -> list[bool]:
        """Whether each context has a group, in any datastore."""
        if not isinstance(self.group, Mapping):
            return list(map(bool, self.groups))
        columns = [_of_each(groups, len(self.contexts)) for groups in self.group.values()]
        return [any(row) for row in zip(*columns, strict=False)] or [False] * len(self.contexts)

    def at(self, places: Sequence[int]) -> ContextQuery:
        """The query for the contexts at ``places`` alone."""
        budgets = self.budgets

        def chosen(groups: Groups) -> list[str | None]:
            each = _of_each(groups, len(self.contexts))
            return [each[place] for place in places]

        group: StoreGroups = None
        if isinstance(self.group, Mapping):
            group = {name: chosen(groups) for name, groups in self.group.items()}
        elif any(self.groups):
            group = chosen(self.group)
        return self._replace(
            contexts=[self.contexts[place] for place in places],
            max_nodes=[budgets[place] for place in places],
            group=group,
            least_counts=[self.least_counts[place] for place in places] if self.least_counts else (),
        )


def check_scope(scope: str | None, grouped: Sequence[object]) -> str:
    """``scope``, or the default scope. ``grouped``: for each context, whether it has a group.

    Raises:
        InvalidArgument: the scope is unknown, or it needs a group, and a context has none.
    """
    if scope is not None:
        check_choice("scope", scope, SCOPES)
    if scope in ("group", "group_first") and not all(grouped):
        raise InvalidArgument(f"scope is {scope!r}, and a context has no group; name it, or use scope 'store'")
    return scope or ("group_first" if any(grouped) else "store")


def _of_each(groups: Groups, count: int) -> list[str | None]:
    return [groups] * count if groups is None or isinstance(groups, str) else list(groups)


def _go_on() -> None:
    """Let a search go on."""


class OccurrenceQuery(NamedTuple):
    """The arguments of ``Retriever.occurrences``, in its order.

    ``before_place`` is called before each place is read from a file. It may raise an error to end the search.
    """

    pattern: Tokens
    limit: int = DEFAULT_OCCURRENCES
    context: int = DEFAULT_WINDOW
    before: int = 0
    group: str | None = None
    scope: str | None = None
    before_place: Callable[[], None] = _go_on

    @property
    def whole(self) -> ContextQuery:
        """The lookup of the whole pattern."""
        size = len(self.pattern)
        return ContextQuery([self.pattern], size, size, group=self.group, scope=self.scope)

    def check(self, order_depth: int) -> None:
        """Raise InvalidArgument if the pattern has no tokens or more than ``order_depth``, or if a number is out of range."""
        if not 1 <= len(self.pattern) <= order_depth:
            raise InvalidArgument(f"a pattern of {len(self.pattern)} tokens; it must have 1 to {order_depth}")
        for name in ("limit", "context", "before"):
            check_range(name, getattr(self, name), 0, MAX_OCCURRENCES)
