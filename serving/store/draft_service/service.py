"""The draft service without a transport: admission, limits, deadlines, metrics, and calls of the datastore."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from suffolk.datastore import limits
from suffolk.datastore.context_query import ContextQuery, Groups, OccurrenceQuery, StoreGroups, Tokens
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import (
    DeadlineExceeded,
    Field,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unsupported,
)
from suffolk.datastore.merged import MergedDatastore
from suffolk.datastore.retriever import Match, Retriever
from suffolk.datastore.tree_paths import Paths, path_counts, tree_paths
from suffolk.serving.net.admission import MAX_RETRY_SECONDS, AdmissionController
from suffolk.serving.net.identity import Role, caller
from suffolk.serving.net.messages.choices import DatastoreChoice, check_choices
from suffolk.serving.net.messages.documents import pack_groups, unpack_groups
from suffolk.serving.net.messages.replies import pack_tokenizer
from suffolk.serving.net.quota import take_queries
from suffolk.serving.net.url import short_name, tenant_of
from suffolk.serving.store.draft_service.disclosure import HiddenPaths, MinCount, public_info
from suffolk.serving.store.draft_service.metrics import DraftMetrics
from suffolk.serving.store.draft_service.streams import StreamPlaces
from suffolk.serving.store.replication.replicated_store import ReplicatedStore

CHUNK = 32
"""Queries between two checks of the deadline."""
_MOST_MERGED = 256
"""Most combinations of datastores and weights that are remembered as valid."""

Choices = Sequence[DatastoreChoice]
Expired = Callable[[], bool]
"""Returns True if the call was cancelled or its deadline has passed. The remaining queries are then skipped."""
T = TypeVar("T")


class DraftService:
    """Drafts and lookups from named datastores, for gRPC and HTTP. Thread-safe."""

    def __init__(
        self,
        datastores: Mapping[str, Retriever],
        max_concurrent: int,
        min_count: int = 1,
        shows_occurrences: bool = True,
    ) -> None:
        """``min_count``: text of fewer documents is hidden. ``shows_occurrences``: whether ``occurrences`` is allowed."""
        self._datastores = dict(sorted(datastores.items()))
        self._min_count = min_count
        self._shows_occurrences = shows_occurrences
        self._tokenizers: dict[str, bytes] = {}  # packed at the first call
        self._merged = lru_cache(_MOST_MERGED)(self._merge)
        self._changing: set[str] = set()  # names of datastores in which a flush or deletion runs
        self._change_lock = threading.Lock()
        self._paths = HiddenPaths()
        self.admission = AdmissionController(max_concurrent, "max_concurrent")
        for store in datastores.values():
            if isinstance(store, ReplicatedStore):
                store.waiting = self.admission.aside
        self.metrics = DraftMetrics(self._datastores, self.admission)
        self.streams = StreamPlaces(self.metrics)

    def add_datastore(self, name: str, datastore: Retriever) -> None:
        """Serve one more datastore, for the calls that begin later. The caller closes it after the server's end."""
        self._datastores = dict(sorted({**self._datastores, name: datastore}.items()))
        self.metrics.datastores.add(name, datastore)

    def handle_call(self, transport: str, method: str, work: Callable[[], T]) -> T:
        """Admit, measure and run one call. All transports use it. Raises SuffolkError only."""
        with (
            self.metrics.measure_call(transport, method),
            self.admission.admit_call(),
            self._paths.in_errors(self._datastores),
        ):
            return work()

    def draft(self, choices: Choices, query: ContextQuery, expired: Expired) -> list[DraftTree]:
        """One tree for each context.

        Args:
            choices: the datastores to search as one; empty: the server's only datastore. Groups are in ``choices`` or
                in ``query``, not in both.

        Raises:
            InvalidArgument: an argument is out of its limits (limits.py), or the datastore rejects it.
            NotFound: there is no datastore of that name.
            DeadlineExceeded: the deadline passed or the call was cancelled.
            ResourceExhausted: the caller's tenant has no queries left.
        """
        datastore, query = self._admitted(choices, query, expired)
        trees: list[DraftTree] = []
        for part in _chunks(query, expired):
            trees += datastore.find_drafts(query.at(part))
        self.metrics.count_batch("Draft", [tree.match_length for tree in trees], [len(tree) for tree in trees])
        return trees

    def lookup(self, choices: Choices, query: ContextQuery, expired: Expired) -> list[Match]:
        """One match for each context. See ``draft``."""
        datastore, query = self._admitted(choices, query, expired)
        matches: list[Match] = []
        for part in _chunks(query, expired):
            matches += datastore.find_matches(query.at(part))
        self.metrics.count_batch("Lookup", [match.length for match in matches], [])
        return matches

    def count(
        self, choices: Choices, contexts: Sequence[Tokens], trees: Sequence[Paths], expired: Expired
    ) -> list[int]:
        """The count of each continuation. ``trees``: one for each context. See ``draft``."""
        limits.check_paths(contexts, trees)
        take_queries(len(contexts))
        datastore = self.chosen(choices, expired)
        counts: list[int] = []
        for context, tree in zip(contexts, trees, strict=True):
            counts += path_counts(datastore, list(map(int, context)), tree_paths(tree), expired)
        return counts

    def occurrences(
        self, choices: Choices, query: OccurrenceQuery, expired: Expired, text: str = ""
    ) -> list[Occurrence]:
        """Places of a pattern, in documents of the datastores. ``text``: a text instead of the pattern. See ``draft``.

        Raises:
            PermissionDenied: the server does not show occurrences.
        """
        limits.check_occurrences(query.limit, query.context, query.before)
        limits.check_scope(query.scope)
        limits.check_grouped(query.scope, [query.group])
        if any(each.group for each in choices):
            raise InvalidArgument("datastores: their groups are for drafts and lookups; name one group for the request")
        weights = self.weights(choices)
        datastore = self._searched(weights, expired)
        if not self._shows_occurrences:
            raise PermissionDenied("this server shows no occurrences; ask its operator for --occurrences on")
        if query.group and not datastore.has_groups:
            raise Unsupported(f"datastore {datastore.name} has no groups, only live ones have; leave the group out")
        take_queries(max(1, query.limit))
        if text:
            limits.check_text(text)
            query = query._replace(pattern=datastore.encode(text))

        def require_time() -> None:
            if expired():
                raise DeadlineExceeded(
                    "the deadline passed before all occurrences were read; allow more time or lower limit"
                )

        require_time()
        scope = query.scope if query.group else None
        found = datastore.find_occurrences(query._replace(scope=scope, before_place=require_time))
        if len(weights) > 1:
            return found
        [name] = weights  # this name may differ from the folder's
        return [replace(place, datastore=name) for place in found]

    def info(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Datastore name -> its info, for ``names``, or if ``names`` is empty, for all datastores that the caller may read.

        Omits paths on the server. Adds the caller's ``role``, and ``min_count`` if rare text is hidden.
        """
        hidden = {"min_count": self._min_count} if self._min_count > 1 else {}
        names = [self._resolve(name) for name in names] or self._visible()
        return {
            each: public_info(self._datastores[each].info()) | {"role": str(caller().role_in(tenant_of(each)))} | hidden
            for each in names
        }

    def tokenizer(self, name: str) -> bytes:
        """The tokenizer.json of a datastore as a zstd frame (replies.py).

        Raises:
            NotFound: there is no datastore of that name, or it has no tokenizer.
            ResourceExhausted: the tokenizer is larger than a reply may be.
        """
        name = self._resolve(name)
        if name not in self._tokenizers:
            tokenizer = self._datastores[name].tokenizer()
            if tokenizer is None:
                raise NotFound(f"datastore {name} was built from token ids and has no tokenizer; pass token ids")
            self._tokenizers[name] = pack_tokenizer(tokenizer)
        return self._tokenizers[name]

    def _searched(self, choices: Mapping[str, int], expired: Expired) -> Retriever:
        found = self._datastores[next(iter(choices))] if len(choices) == 1 else self._merged(*choices.items())
        return found if self._min_count == 1 else MinCount(found, self._min_count, expired)

    def _merge(self, *choices: tuple[str, int]) -> Retriever:
        """Several datastores as one. ``choices``: names and weights."""
        return MergedDatastore({name: self._datastores[name] for name, _ in choices}, [weight for _, weight in choices])

    def of_tenant(self, tenant: str) -> list[Retriever]:
        """All datastores of a tenant."""
        return [store for name, store in self._datastores.items() if tenant_of(name) == tenant]

    def weights(self, choices: Choices) -> dict[str, int]:
        """Weights by the full names of datastores, at least one. Raises the errors of ``chosen``."""
        return {self._resolve(each.name): each.weight for each in check_choices(choices)} or {self._resolve(""): 1}

    def chosen(self, choices: Choices, expired: Expired) -> Retriever:
        """The chosen datastore, or several as one. It hides rare text as configured, and gives up when the call has
        ``expired``.

        Raises:
            NotFound: there is no datastore of that name, or the caller may not read it.
            InvalidArgument: the choice is malformed, or the datastores do not fit together.
            Unsupported: a datastore can only be searched alone.
        """
        return self._searched(self.weights(choices), expired)

    def find(self, name: str) -> tuple[str, Retriever]:
        """The full name and the datastore of ``name``. Raises NotFound if the caller may not read it."""
        name = self._resolve(name)
        return name, self._datastores[name]

    @contextmanager
    def exclusive_change(self, name: str) -> Iterator[None]:
        """Exclude other flushes and deletions of datastore ``name`` during the block. Raises ResourceExhausted if one runs
        already."""
        name = self._resolve(name)
        with self._change_lock:
            if name in self._changing:
                text = f"datastore {name}: another flush or deletion runs; try again when it has ended"
                raise ResourceExhausted(text, retry_seconds=MAX_RETRY_SECONDS)
            self._changing.add(name)
        try:
            yield
        finally:
            with self._change_lock:
                self._changing.remove(name)

    def _admitted(self, choices: Choices, query: ContextQuery, expired: Expired) -> tuple[Retriever, ContextQuery]:
        """The datastore to search, and the query with the group of each context."""
        limits.check_query(query)
        take_queries(len(query.contexts))
        datastore = self.chosen(choices, expired)
        groups = self._groups(datastore, choices, query)
        grouped = query._replace(group=groups).has_group
        limits.check_grouped(query.scope, grouped)
        return datastore, query._replace(**({"group": groups} if any(grouped) else {"group": None, "scope": None}))

    def _groups(self, datastore: Retriever, choices: Choices, query: ContextQuery) -> StoreGroups:
        """The group of each context, from the groups given for each datastore or for all; None without groups."""
        assert not isinstance(query.group, Mapping)
        queries = len(query.contexts)
        of_all = unpack_groups(pack_groups(query.group), queries, "contexts")
        of_stores: dict[str, Groups] = {}
        for choice in choices:
            if (groups := unpack_groups(pack_groups(choice.group), queries, "contexts")) is not None:
                name, store = self.find(choice.name)
                if not store.has_groups:
                    raise Unsupported(f"datastore {name} has no groups, only live ones have; leave its groups out")
                of_stores[name] = groups
        if of_stores and of_all is not None:
            raise InvalidArgument("groups are given for single datastores and for all; give one of the two")
        if of_stores:
            return next(iter(of_stores.values())) if len(choices) == 1 else of_stores
        if of_all is not None and not datastore.has_groups:
            raise Unsupported(f"datastore {datastore.name} has no groups, only live ones have; leave groups out")
        return of_all

    def _resolve(self, name: str) -> str:
        limits.check_name(name)
        name = short_name(name)
        if name in self._datastores and caller().has(tenant_of(name), Role.READ):
            self.metrics.name_datastore(name)
            return name
        visible = self._visible()
        known = ", ".join(visible) or "none"
        if name or not visible:  # the same answer for an unknown name and for a name of another tenant
            raise NotFound(Field("datastore"), f": there is no {name!r}; this caller may read {known}")
        if len(visible) != 1:
            raise InvalidArgument(
                Field("datastore"), f": no name was given and there are several; choose one of {known}"
            )
        self.metrics.name_datastore(visible[0])
        return visible[0]

    def _visible(self) -> list[str]:
        """Names of the datastores that the caller may read."""
        return [name for name in self._datastores if caller().has(tenant_of(name), Role.READ)]


def _chunks(query: ContextQuery, expired: Expired) -> Iterator[range]:
    """Ranges of CHUNK contexts; at least one range. With groups, each range is one context, because a scan of a group's
    texts may take 0.1 s.

    Raises DeadlineExceeded between two of them.
    """
    total, size = len(query.contexts), 1 if query.group is not None else CHUNK
    for start in range(0, max(1, total), size):
        if expired():
            raise DeadlineExceeded(
                f"the deadline passed with {start} of {total} queries answered; allow more time or send fewer"
            )
        yield range(start, min(start + size, total))
