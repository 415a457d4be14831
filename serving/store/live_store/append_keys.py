"""The keys of recent appends: an append that is repeated with its key is made once."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from suffolk.datastore.appendable import check_key
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.store.live_store.record import FORGET, KeyedAppend

KEY_SECONDS = 600
"""How long a key is remembered."""
MOST_KEYS = 1 << 16
"""The oldest are dropped first."""
NO_KEY = FORGET
"""An append without a key."""


class AppendKeys:
    """The appends of the last KEY_SECONDS that had a key. It needs one caller at a time."""

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
            InvalidArgument: it had another number of documents or tokens.
        """
        found = self._known.get(key)
        if found is not None and (found.documents, found.tokens) != (documents, tokens):
            raise InvalidArgument(
                f"key: an append of {found.documents} documents with {found.tokens} tokens had this key, and this one has "
                f"{documents} with {tokens}; give each append its own key"
            )
        return found

    def all(self) -> list[KeyedAppend]:
        """All keys, in order, after an entry that lets a reader forget others."""
        return [KeyedAppend(FORGET), *self._known.values()]

    def _oldest(self) -> KeyedAppend:
        return next(iter(self._known.values()))


def hash_key(key: str, secret: str) -> bytes:
    """The 16 bytes by which a key is known. ``secret``: of the store, in hex. Raises as ``check_key``."""
    name = check_key(key).encode("utf-8", "replace")
    return blake2b(name, digest_size=16, key=bytes.fromhex(secret), person=b"append key").digest()
