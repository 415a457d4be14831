"""Queries of a live store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from suffolk.datastore import _native
from suffolk.datastore.context_query import ContextQuery, OccurrenceQuery, check_scope
from suffolk.datastore.documents import Occurrence, check_group
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import Retriever
from suffolk.datastore.tokenizer import read_stored_tokenizer
from suffolk.serving.store.live_store.bounds import Bounds
from suffolk.serving.store.live_store.contents import unpack_origin
from suffolk.serving.store.live_store.identity import StoreIdentity
from suffolk.serving.store.live_store.published_files import PublishedFiles


class LiveQueries(Retriever):
    """The methods of ``LiveStore`` that only read. Thread-safe.

    Attributes:
        path: the store's folder.
        identity: the settings of the store that never change.
    """

    path: Path
    identity: StoreIdentity
    has_groups = True
    _live: _native.LiveIndex
    _bounds: Bounds
    _files: PublishedFiles
    _tokenizer: Tokenizer | None = None

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def vocab_size(self) -> int:
        return self.identity.vocab_size

    def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        query.check(self.identity.order_depth)
        keys, scope = self.group_keys(query.whole)
        length = len(query.pattern) + query.context
        while True:
            datastore = self._files.datastore
            files = datastore.open_segments() if datastore is not None else ()
            by_native = {segment.native: segment for segment in files}
            found = self._live.occurrences(query.pattern, query.limit, length, query.before, int(keys[0]), scope)
            if all(native is None or native in by_native for native, *_ in found):
                break  # otherwise another generation was taken up in the meantime
        places = []
        for native, number, place, packed, tokens, earlier in found:
            if native is None:
                source, metadata, _ = unpack_origin(packed)
                places.append(Occurrence("", number, place, source, metadata, tokens, earlier, self.name))
            else:
                query.before_place()
                places.append(by_native[native].occurrence(place, query.before, length, self.name))
        return places

    def group_keys(self, query: ContextQuery) -> tuple[npt.NDArray[np.uint64], str]:
        count, names = len(query.contexts), query.groups
        if len(names) != count:
            raise InvalidArgument(f"{len(names)} groups for {count} contexts; give one for each, or one for all")
        keys = [0 if name is None else self._key(name) for name in names]
        scope = check_scope(query.scope, keys)
        self._bounds.use(set(keys))
        return np.array(keys, np.uint64), scope

    def native(self) -> _native.Searched:
        return self._live

    def tokenizer(self) -> Tokenizer | None:
        """See ``Retriever.tokenizer``.

        Raises:
            Corruption: the tokenizer's file is missing or damaged, or holds another tokenizer.
        """
        if self._tokenizer is None:
            self._tokenizer = read_stored_tokenizer(self.path, self.identity.tokenizer)
        return self._tokenizer

    def _key(self, group: str) -> int:
        check_group(group)
        return self.identity.group_key(group)
