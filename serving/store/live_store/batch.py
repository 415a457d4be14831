"""Checks the documents of one append, finds the documents that they displace, and remembers the keys of recent
appends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.datastore.appendable import check_key
from suffolk.datastore.arguments import check_groups
from suffolk.datastore.context_query import Groups
from suffolk.datastore.documents import Document, check_documents
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.segment import token_dtype
from suffolk.serving.store.live_store.contents import LiveOrigin, pack_origin
from suffolk.serving.store.live_store.identity import StoreIdentity
from suffolk.serving.store.live_store.record import COLUMN_BYTES, FORGET, KeyedAppend
from suffolk.serving.store.live_store.settings import MAX_BATCH_ORIGIN_BYTES, MAX_BATCH_TOKENS, LiveSettings

GROUP_SLACK = 8
"""A full group is cut to 7/8 of its bound, so that not every append has to remove documents."""


@dataclass(frozen=True, slots=True)
class AppendBatch:
    """Documents to append.

    Attributes:
        tokens: uint16 or uint32 [all tokens].
        lengths: uint32[documents], tokens of each document.
        keys: uint64[documents], key of each document's group.
        origins: source, metadata and group of each document, as ``contents.pack_origin`` packs them.
    """

    tokens: npt.NDArray[Any]
    lengths: npt.NDArray[np.uint32]
    keys: npt.NDArray[np.uint64]
    origins: list[bytes]

    def group_tokens(self) -> dict[int, int]:
        """Key of each group in the batch -> its tokens."""
        found: dict[int, int] = {}
        for key, length in zip(self.keys.tolist(), self.lengths.tolist(), strict=True):
            if key:
                found[key] = found.get(key, 0) + length
        return found


def make_batch(
    documents: Sequence[Document], group: Groups, identity: StoreIdentity, settings: LiveSettings
) -> AppendBatch:
    """Check documents, and join them.

    Raises:
        InvalidArgument: names the first document that is empty, larger than a bound, or has a token id out of range; or a
            source, metadata or group is not allowed, or all documents together are larger than a bound.
    """
    check_documents(documents)
    check_groups(group)
    groups = [group] * len(documents) if group is None or isinstance(group, str) else list(group)
    if len(groups) != len(documents):
        raise InvalidArgument(f"{len(groups)} groups for {len(documents)} documents; give one for each, or one for all")
    if not documents:
        raise InvalidArgument("no documents are given; give at least one")
    dtype = token_dtype(identity.vocab_size)
    arrays = [_tokens(number, each, identity.vocab_size, dtype) for number, each in enumerate(documents)]
    lengths = np.array([len(array) for array in arrays], np.int64)
    _check_sizes(lengths, groups, settings)
    origins = [
        pack_origin(LiveOrigin(each.source, each.metadata, name)) for each, name in zip(documents, groups, strict=True)
    ]
    size = sum(map(len, origins)) + COLUMN_BYTES * len(origins)
    if size > MAX_BATCH_ORIGIN_BYTES:
        raise InvalidArgument(
            f"an append of {len(origins)} documents with {size} bytes of ids, metadata and groups; one append may have "
            f"{MAX_BATCH_ORIGIN_BYTES}: append less at once"
        )
    known = {name: identity.group_key(name) if name is not None else 0 for name in set(groups)}
    batch = AppendBatch(
        np.concatenate(arrays),
        lengths.astype(np.uint32),
        np.array([known[name] for name in groups], np.uint64),
        origins,
    )
    for key, tokens in batch.group_tokens().items():
        if tokens > settings.max_group_tokens:
            name = next(name for name in known if known[name] == key)
            raise InvalidArgument(
                f"group {name!r}: {tokens} tokens in one append; a group may have {settings.max_group_tokens} "
                "(max_group_tokens): append less, or raise the bound",
            )
    return batch


def _tokens(number: int, document: Document, vocab_size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    try:
        ids = np.asarray(document.tokens)
    except ValueError:  # lists of different lengths
        ids = np.asarray(None)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise InvalidArgument(f"document {number}: its tokens are no list of whole numbers; give token ids")
    if not ids.size:
        raise InvalidArgument(f"document {number} has 0 tokens; a document has at least one: leave it out")
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab_size:
        raise InvalidArgument(
            f"document {number} has token id {low if low < 0 else high}; ids must be 0 to {vocab_size - 1}: "
            "encode it with the store's tokenizer"
        )
    return ids.astype(dtype)


def _check_sizes(lengths: npt.NDArray[np.int64], groups: Sequence[str | None], settings: LiveSettings) -> None:
    longest = int(lengths.argmax())
    bounds = [(MAX_BATCH_TOKENS, "one append")]
    if settings.max_tokens:
        bounds.append((settings.max_tokens, "the store (max_tokens)"))
    if groups[longest] is not None:
        bounds.append((settings.max_group_tokens, "a group (max_group_tokens)"))
    bound, name = min(bounds)
    if lengths[longest] > bound:
        raise InvalidArgument(
            f"document {longest} has {lengths[longest]} tokens; {name} may have {bound}: cut it, or raise the bound"
        )
    bound, name = min(bounds[:2])
    if lengths.sum() > bound:
        raise InvalidArgument(f"an append of {lengths.sum()} tokens; {name} may have {bound}: append less at once")


def displaced(index: _native.LiveIndex, batch: AppendBatch, replace: bool, bound: int) -> npt.NDArray[np.uint64]:
    """The rising sequences of the documents that an append removes.

    Args:
        replace: whether the batch replaces its groups. If not, the oldest documents that do not fit are removed.
        bound: the most tokens of a group; the batch itself does not exceed it.
    """
    removed = [np.empty(0, np.uint64)]
    for key, added in batch.group_tokens().items():
        if replace:
            removed.append(index.group_documents(key)[0])
            continue
        held = index.group_stats(key)["tokens"]
        if held + added <= bound:
            continue
        sequences, lengths = index.group_documents(key)
        excess = held + added - max(added, bound - bound // GROUP_SLACK)
        count = int(np.searchsorted(np.cumsum(lengths, dtype=np.int64), excess)) + 1
        removed.append(sequences[:count])
    return np.sort(np.concatenate(removed))


KEY_SECONDS = 600
"""How long a key is remembered."""
MOST_KEYS = 1 << 16
"""Most keys that are remembered. The oldest keys are dropped first."""


class AppendKeys:
    """The appends of the last KEY_SECONDS that had a key. Not thread-safe."""

    def __init__(self, known: Iterable[KeyedAppend] = ()) -> None:
        self._known: dict[bytes, KeyedAppend] = {}  # the oldest first
        self.add(known)

    def add(self, appends: Iterable[KeyedAppend]) -> None:
        """Remember appends."""
        for each in appends:
            if each.key == FORGET:
                self._known.clear()
                continue
            self._known.pop(each.key, None)
            self._known[each.key] = each
            while len(self._known) > MOST_KEYS or self._oldest().time < each.time - KEY_SECONDS:
                del self._known[self._oldest().key]

    def find(self, key: bytes, documents: int, tokens: int) -> KeyedAppend | None:
        """The append that had this key; None if there is none.

        Raises:
            InvalidArgument: this append had another number of documents or tokens.
        """
        found = self._known.get(key)
        if found is not None and (found.documents, found.tokens) != (documents, tokens):
            raise InvalidArgument(
                f"key: an append of {found.documents} documents with {found.tokens} tokens had this key, and this one has "
                f"{documents} with {tokens}; give each append its own key"
            )
        return found

    def all(self) -> list[KeyedAppend]:
        """All keys, in order. They follow an entry that makes a reader forget all earlier keys."""
        return [KeyedAppend(FORGET), *self._known.values()]

    def _oldest(self) -> KeyedAppend:
        return next(iter(self._known.values()))


def hash_key(key: str, secret: str) -> bytes:
    """The 16 bytes by which a key is known. ``secret``: of the store, in hex. Raises the errors of ``check_key``."""
    name = check_key(key).encode("utf-8", "replace")
    return blake2b(name, digest_size=16, key=bytes.fromhex(secret), person=b"append key").digest()
