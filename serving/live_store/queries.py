"""Queries of a live store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import RETRIEVED, DraftTree
from suffolk.datastore.errors import Corruption, InvalidArgument
from suffolk.datastore.manifest import tokenizer_name
from suffolk.datastore.occurrence import Occurrence, check_occurrences
from suffolk.datastore.retriever import (
    DEFAULT_MAX_DEPTH,
    DEFAULT_MAX_MATCH,
    DEFAULT_MAX_NODES,
    DEFAULT_MIN_MATCH,
    DEFAULT_OCCURRENCES,
    DEFAULT_WINDOW,
    SCOPES,
    Groups,
    Match,
    Retriever,
    Tokens,
)
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.live_store.bounds import Bounds
from suffolk.serving.live_store.identity import StoreIdentity
from suffolk.serving.live_store.origin import check_group, unpack_origin
from suffolk.serving.live_store.published_files import PublishedFiles


class LiveQueries(Retriever):
    """The methods of ``LiveStore`` that only read. Thread-safe.

    Attributes:
        path: the store's folder.
        identity: what never changes in it.
    """

    path: Path
    identity: StoreIdentity
    _live: _native.LiveIndex
    _bounds: Bounds
    _files: PublishedFiles
    _tokenizer: Tokenizer | None = None

    @property
    def name(self) -> str:
        """See ``Retriever.name``."""
        return self.path.name

    @property
    def vocab_size(self) -> int:
        """See ``Retriever.vocab_size``."""
        return self.identity.vocab_size

    @property
    def has_groups(self) -> bool:
        """Whether queries may name a group."""
        return True

    def lookup(
        self,
        context: str | Tokens,
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        group: str | None = None,
        scope: str | None = None,
    ) -> Match:
        """See ``Retriever.lookup`` and ``lookup_batch``."""
        return self.lookup_batch([self._ids(context)], max_match, min_match, group, scope)[0]

    def lookup_batch(
        self,
        contexts: Sequence[Tokens],
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        group: Groups = None,
        scope: str | None = None,
    ) -> list[Match]:
        """See ``Retriever.lookup_batch``.

        Args:
            group: the group of all contexts, or a sequence with the group, or None, of each. An unknown group is empty.
            scope: what is searched. ``store``: everything. ``group``: the group. ``group_first``, the default with a group: the
                group, and everything if nothing is found there.
        """
        answers = self._live.lookup(contexts, max_match, min_match, *self.group_keys(len(contexts), group, scope))
        return [Match(*answer) for answer in answers]

    def draft(
        self,
        context: str | Tokens,
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        max_depth: int = DEFAULT_MAX_DEPTH,
        max_nodes: int = DEFAULT_MAX_NODES,
        group: str | None = None,
        scope: str | None = None,
    ) -> DraftTree:
        """See ``Retriever.draft`` and ``draft_batch``."""
        return self.draft_batch([self._ids(context)], max_match, min_match, max_depth, max_nodes, group, scope)[0]

    def draft_batch(
        self,
        contexts: Sequence[Tokens],
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        max_depth: int = DEFAULT_MAX_DEPTH,
        max_nodes: int | Sequence[int] = DEFAULT_MAX_NODES,
        group: Groups = None,
        scope: str | None = None,
    ) -> list[DraftTree]:
        """See ``Retriever.draft_batch``.

        Args:
            group, scope: as for ``lookup_batch``. With ``group_first``, everything is drafted from for what is left of
                ``max_nodes``.
        """
        budgets = [max_nodes] * len(contexts) if isinstance(max_nodes, int) else list(max_nodes)
        keys, scope = self.group_keys(len(contexts), group, scope)
        trees = self._live.draft(contexts, max_match, min_match, max_depth, budgets, RETRIEVED, keys, scope)
        return [DraftTree(*tree) for tree in trees]

    def occurrences(
        self,
        pattern: str | Tokens,
        limit: int = DEFAULT_OCCURRENCES,
        context: int = DEFAULT_WINDOW,
        before: int = 0,
        group: str | None = None,
        scope: str | None = None,
    ) -> list[Occurrence]:
        """See ``Retriever.occurrences``; ``group`` and ``scope``: see ``lookup_batch``."""
        ids = self._ids(pattern)
        check_occurrences(ids, self.identity.order_depth, limit, context, before)
        keys, scope = self.group_keys(1, group, scope)
        length = len(ids) + context
        while True:
            datastore = self._files.datastore
            files = datastore.open_segments() if datastore is not None else ()
            by_native = {segment.native: segment for segment in files}
            found = self._live.occurrences(ids, limit, length, before, int(keys[0]), scope)
            if all(native is None or native in by_native for native, *_ in found):
                break  # otherwise another generation was taken up in the meantime
        places = []
        for native, number, place, packed, tokens, earlier in found:
            if native is None:
                source, metadata, _ = unpack_origin(packed)
                places.append(Occurrence("", number, place, source, metadata, tokens, earlier, self.name))
            else:
                places.append(by_native[native].occurrence(place, before, length, self.name))
        return places

    def group_keys(self, count: int, group: Groups, scope: str | None) -> tuple[npt.NDArray[np.uint64], str]:
        """See ``Retriever.group_keys``."""
        if scope is not None and scope not in SCOPES:
            raise InvalidArgument(f"scope is {scope!r}; it must be one of {', '.join(SCOPES)}")
        names = [group] * count if group is None or isinstance(group, str) else list(group)
        if len(names) != count:
            raise InvalidArgument(f"{len(names)} groups for {count} contexts; give one for each, or one for all")
        keys = [0 if name is None else self._key(name) for name in names]
        if scope in ("group", "group_first") and 0 in keys:
            raise InvalidArgument(f"scope is {scope!r}, and a context has no group; name it, or use scope 'store'")
        self._bounds.use(set(keys))
        return np.array(keys, np.uint64), scope or ("group_first" if any(keys) else "store")

    def native(self) -> _native.Searched:
        """See ``Retriever.native``."""
        return self._live

    def tokenizer(self) -> Tokenizer | None:
        """See ``Retriever.tokenizer``.

        Raises:
            Corruption: the tokenizer's file is missing or damaged, or holds another tokenizer.
        """
        if self._tokenizer is None and self.identity.tokenizer is not None:
            path = self.path / tokenizer_name(self.identity.tokenizer)
            if not path.is_file() or fingerprint(tokenizer := load_tokenizer(path)) != self.identity.tokenizer:
                raise Corruption(f"{path} is missing or another tokenizer; copy the store's tokenizer.json there")
            self._tokenizer = tokenizer
        return self._tokenizer

    def _key(self, group: str) -> int:
        check_group(group)
        return self.identity.group_key(group)
