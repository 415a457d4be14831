"""The calls of the draft service that change or count the documents of live datastores, without a transport."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar

from suffolk.datastore.appendable import Appendable, Appended, DocumentState, LiveDeletion
from suffolk.datastore.documents import Document
from suffolk.datastore.errors import InvalidArgument, NotFound, SuffolkError, Unsupported
from suffolk.serving.net.identity import Role, caller
from suffolk.serving.net.quota import usage_of
from suffolk.serving.net.url import tenant_of
from suffolk.serving.store.draft_service.service import DraftService
from suffolk.serving.store.replication.replicated_store import ReplicatedStore

T = TypeVar("T")


class Append(NamedTuple):
    """The arguments of ``LiveStore.append_batch``."""

    documents: Sequence[Document]
    groups: Sequence[str | None] | None = None
    replace: bool = False
    key: str | None = None


class LiveCalls:
    """Appends, deletions, flushes and counts, for gRPC and HTTP. Thread-safe.

    All calls raise NotFound for an unknown datastore, Unsupported if it is not live, PermissionDenied for a caller without the
    role, and the errors of ``LiveStore``.
    """

    def __init__(self, service: DraftService) -> None:
        self._service = service

    def append(self, name: str, append: Append) -> Appended:
        """Append documents: all or none."""
        store = self._find(name, Role.APPEND)
        documents, groups, replace, key = append
        usage = usage_of(tenant_of(self._service.find(name)[0]))
        added = sum(len(each.tokens) for each in documents)
        if replace and usage.quota.stored_tokens < math.inf:
            added -= _stored_of(store, groups or ())
        with usage.reserve_tokens(added, lambda: self._stored_tokens(usage.tenant)):
            return store.append_batch(documents, groups, replace, key)

    def append_stream(
        self, appends: Iterable[Callable[[], Appended]], admitted: Callable[[Callable[[], Appended]], Appended]
    ) -> Appended:
        """Make each of ``appends``, and return the sums.

        Args:
            admitted: runs each append as a call of its own, so that a slow stream occupies no place between two
                messages.

        Raises:
            SuffolkError: a message fails. Earlier messages stay appended, and the error counts them.
        """
        total: Appended | None = None
        for number, append in enumerate(appends):
            try:
                total = add_appended(total, admitted(append))
            except SuffolkError as error:
                kept = 0 if total is None else total.documents
                error.extend(f"message {number} of the stream: ", f"; {kept} documents before it are appended")
                raise
        if total is None:
            raise InvalidArgument("the stream has no message; send at least one")
        return total

    def get(self, name: str, id: str) -> DocumentState:
        """The state of the documents with an id. Raises NotFound: there are no such documents."""
        return self._find(name, Role.APPEND).get(id)

    def delete(self, name: str, ids: Sequence[str], where: Sequence[str], group: str) -> LiveDeletion:
        """Delete documents by ids and conditions, or a group. Raises ResourceExhausted in the same case as ``flush``, except for
        a group or at a replica."""
        store = self._find(name, Role.ADMIN)
        rewrites = not group and not isinstance(store, ReplicatedStore)  # replicas have no files, but wait for others
        with self._service.exclusive_change(name) if rewrites else nullcontext():
            return store.delete(ids, where, group or None)

    def flush(self, name: str) -> int | None:
        """Publish the documents in memory. Returns the new generation; None if there was nothing to publish.

        Raises:
            ResourceExhausted: another flush or deletion of the datastore runs. A call that waits would occupy a place of admission.
        """
        store = self._find(name, Role.ADMIN)
        with self._service.exclusive_change(name):
            return store.flush()

    def stats(self, name: str, group: str) -> dict[str, Any]:
        """The fields of ``LiveStats``, or of ``GroupStats`` if ``group`` is not empty."""
        store = self._find(name, Role.READ)
        return asdict(store.group_stats(group) if group else store.stats())

    def encode(self, name: str, text: str) -> list[int]:
        """The token ids of a text to append. Raises NotFound if the datastore has no tokenizer."""
        return self._find(name, Role.APPEND).encode(text)

    def _stored_tokens(self, tenant: str) -> int:
        counts = [store.stats() for store in self._service.of_tenant(tenant) if isinstance(store, Appendable)]
        return sum(each.tokens + each.published_tokens for each in counts)

    def _find(self, name: str, role: Role) -> Appendable:
        name, store = self._service.find(name)
        caller().require(tenant_of(name), role)
        if not isinstance(store, Appendable):
            raise Unsupported(
                f"datastore {name} takes no documents; serve it with --live, or build it again with more text",
            )
        return store


def add_appended(total: Appended | None, more: Appended) -> Appended:
    """The sum of appends. ``total``: the sum of the replies before; None if there are none."""
    if total is None:
        return more
    return Appended(
        total.sequence,
        total.documents + more.documents,
        total.tokens + more.tokens,
        total.replaced + more.replaced,
        total.durable and more.durable,
    )


def _stored_of(store: Appendable, groups: Iterable[str | None]) -> int:
    """Tokens that the groups have."""
    found = 0
    for group in set(groups) - {None}:
        with suppress(NotFound):
            found += store.group_stats(group or "").tokens
    return found
