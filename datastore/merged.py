"""Several datastores, searched as one."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from suffolk.datastore import _native
from suffolk.datastore.checks import check_range
from suffolk.datastore.context_query import ContextQuery, OccurrenceQuery, check_scope
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.errors import Field, InvalidArgument, Unsupported
from suffolk.datastore.retriever import Retriever

Name = TypeVar("Name", str, int)
MAX_DATASTORES = 16
"""Datastores that are searched as one."""
MAX_WEIGHT = 16
_SUMS = ("tokens", "documents", "bytes")


class MergedDatastore(Retriever):
    """Answers like one datastore with all documents of ``stores``. A document in a store of weight w counts w times.

    So the longest match over all stores is used, counts are weighted sums, and a score is a share of the weighted occurrences.
    Answers are exact. Each call searches the generations that the stores serve when it begins. Thread-safe.
    """

    def __init__(self, stores: Mapping[str, Retriever], weights: Sequence[int] = ()) -> None:
        """``close`` leaves the stores open.

        Args:
            stores: open datastores by name.
            weights: a whole number of 1..16 for each store; empty: all are 1. Only their ratios count.

        Raises:
            InvalidArgument: there are no stores or too many, a weight is missing or out of range, or the stores differ in
                vocabulary or tokenizer.
            Unsupported: a store can only be searched alone.
        """
        require_weights(weights or [1] * len(stores), len(stores))
        self._stores = dict(stores)
        common = gcd(*weights) if weights else 1
        self._weights = [weight // common for weight in weights] or [1] * len(stores)
        self._searcher: tuple[list[weakref.ref[_native.Searched]], _native.MergedSearcher] | None = None
        self._grouped = [store for store in stores.values() if store.has_groups]
        self._order_depth = merged_info({name: store.info() for name, store in stores.items()})["order_depth"]
        self.native()

    @property
    def name(self) -> str:
        """The names of the stores, with commas between them."""
        return ",".join(self._stores)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._stores)

    @property
    def vocab_size(self) -> int:
        return next(iter(self._stores.values())).vocab_size

    @property
    def has_groups(self) -> bool:
        """See ``Retriever.has_groups``. A query's single group belongs to the only store with groups."""
        return len(self._grouped) == 1

    def group_keys(self, query: ContextQuery) -> tuple[npt.NDArray[np.uint64], str]:
        if not isinstance(query.group, Mapping):
            return self._grouped[0].group_keys(query) if self.has_groups else super().group_keys(query)
        columns = [np.zeros(len(query.contexts), np.uint64)]
        for name, groups in query.group.items():
            if name not in self._stores:
                raise InvalidArgument(
                    Field("group"), f": {name!r} is none of the datastores that are searched: {self.name}"
                )
            columns.append(self._stores[name].group_keys(query._replace(group=groups, scope=None))[0])
        return np.stack(columns, axis=1), check_scope(query.scope, query.has_group)

    def count_documents(self, query: ContextQuery, most: int) -> list[int]:
        """See ``Retriever.count_documents``: the sum over the stores, without weights."""
        counts = [0] * len(query.contexts)
        for store, places, part in self._parts(query):
            for place, count in zip(places, store.count_documents(part, most), strict=True):
                counts[place] = min(most, counts[place] + count)
        return counts

    def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """See ``Retriever.occurrences``. The stores that have the pattern share ``limit`` evenly.

        No occurrence is returned twice, and weights are ignored.
        """
        query.check(self._order_depth)
        scope = "store" if query.group is None and query.scope is None else self.group_keys(query.whole)[1]
        if scope != "store":
            name, store = next((name, store) for name, store in self._stores.items() if store.has_groups)
            found = store.find_occurrences(query._replace(scope="group"))
            if found or scope == "group":
                return _named(found, name)
        query = query._replace(group=None, scope=None)
        counts = {name: store.find_matches(query.whole)[0].count for name, store in self._stores.items()}
        shares = shared_limit(counts, query.limit)
        return [
            place
            for name, store in self._stores.items()
            if shares[name]
            for place in _named(store.find_occurrences(query._replace(limit=shares[name])), name)
        ]

    def select(self, names: Collection[str]) -> MergedDatastore:
        chosen = [
            (name, store, weight)
            for (name, store), weight in zip(self._stores.items(), self._weights, strict=True)
            if name in names
        ]
        return MergedDatastore({name: store for name, store, _ in chosen}, [weight for *_, weight in chosen])

    def tokenizer(self) -> Tokenizer | None:
        return next((found for store in self._stores.values() if (found := store.tokenizer()) is not None), None)

    def info(self) -> dict[str, Any]:
        return merged_info({name: store.info() for name, store in self._stores.items()})

    def close(self) -> None:
        """Do nothing: the stores belong to the caller."""

    def native(self) -> _native.MergedSearcher:
        """See ``Retriever.native``: a searcher of the current indexes of the stores."""
        parts: list[_native.Searched] = []
        for name, store in self._stores.items():
            part = store.native()
            if part is None:
                raise Unsupported(f"datastore {name} can only be searched alone; leave the others out")
            parts.append(part)
        found = self._searcher
        if found is None or any(old() is not new for old, new in zip(found[0], parts, strict=True)):
            forget = weakref.WeakMethod(self._forget)
            old_parts = [weakref.ref(part, lambda part: (method := forget()) and method()) for part in parts]
            found = self._searcher = old_parts, _native.MergedSearcher(parts, self._weights)
        return found[1]

    def _parts(self, query: ContextQuery) -> Iterator[tuple[Retriever, Sequence[int], ContextQuery]]:
        """For each store that the query searches: the places of its contexts, and the query of these contexts alone."""
        every = range(len(query.contexts))
        if query.group is None or query.scope == "store":
            for store in self._stores.values():
                yield store, every, query._replace(group=None, scope=None)
            return
        self.group_keys(query)  # raises if the groups are invalid
        named = next(name for name, store in self._stores.items() if store.has_groups)
        for name, group in (query.group if isinstance(query.group, Mapping) else {named: query.group}).items():
            part = query._replace(group=group)
            places = [at for at, has_group in enumerate(part.has_group) if has_group]
            yield self._stores[name], places, part.at(places)

    def _forget(self) -> None:
        """Release the searcher after a store has released a generation. Otherwise the files of this generation would stay
        open."""
        self._searcher = None


def _named(places: Sequence[Occurrence], name: str) -> list[Occurrence]:
    return [replace(place, datastore=name) for place in places]


def merged_info(infos: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The info of several datastores as one: sums of tokens, documents and bytes, and ``datastores``, the info of each.

    The generation is the highest of all, and the order depth is the smallest.

    Raises:
        InvalidArgument: the datastores differ in their vocabulary or tokenizer.
    """
    tokenizers = {name: info["tokenizer"] for name, info in infos.items() if info.get("tokenizer") is not None}
    for field, values in (
        ("vocabulary", {name: info["vocab_size"] for name, info in infos.items()}),
        ("tokenizer", tokenizers),
    ):
        if len(set(values.values())) > 1:
            raise InvalidArgument(
                f"datastores {', '.join(values)} have different {field} ({', '.join(str(each)[:12] for each in values.values())}); "
                "search them in separate calls"
            )
    return {
        **{key: sum(info.get(key, 0) for info in infos.values()) for key in _SUMS},
        "generation": max(info["generation"] for info in infos.values()),
        "vocab_size": next(iter(infos.values()))["vocab_size"],
        "order_depth": min(info["order_depth"] for info in infos.values()),
        "tokenizer": next(iter(tokenizers.values()), None),
        "datastores": {name: dict(info) for name, info in infos.items()},
    }


def require_weights(weights: Sequence[int], stores: int) -> None:
    """Raise InvalidArgument unless there are 1..16 stores, each with a weight of 1..16."""
    if not 1 <= stores <= MAX_DATASTORES:
        raise InvalidArgument(f"{stores} datastores; a query searches 1 to {MAX_DATASTORES}")
    if len(weights) != stores:
        raise InvalidArgument(f"{len(weights)} weights for {stores} datastores; give one for each")
    for weight in weights:
        check_range("weight", weight, 1, MAX_WEIGHT)


def shared_limit(counts: Mapping[Name, int], limit: int) -> dict[Name, int]:
    """Divide ``limit`` evenly among the names. A name gets at most its count, and the others share the rest."""
    shares = {}
    for left, (name, count) in zip(range(len(counts), 0, -1), sorted(counts.items(), key=itemgetter(1)), strict=True):
        shares[name] = min(count, limit // left)
        limit -= shares[name]
    return shares
