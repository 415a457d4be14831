"""Opens the datastores of a command, checks them against the model, and closes them at the end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence

from suffolk.cli.store_lines import unpublished_note
from suffolk.datastore.retriever import Retriever
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.decoding.drafters.retrieval.limits import Limits, require_match
from suffolk.serving.net.messages.choices import merge_urls
from suffolk.serving.net.url import is_remote
from suffolk.serving.open_store import open_store
from suffolk.serving.store.live_store.store import LiveStore

log = logging.getLogger(__name__)


def opened_stores(
    names: Sequence[str],
    deadline_ms: float | None,
    limits: Limits,
    model: str,
    watch: bool = False,
    live: LiveStore | None = None,
) -> contextlib.AbstractContextManager[list[Retriever]]:
    """The datastores of these names or URLs; each fits the model. Raises the errors of ``open_named`` and ``require_match``.

    Args:
        watch: follow newly published generations.
        live: one more datastore, which is already open and stays open.
    """

    def require_fit(store: Retriever, name: str) -> None:
        if store.info().get("tokenizer") is not None:
            require_match(store, name, limits, model, fingerprint(load_tokenizer(model)))
            return
        from suffolk.serving.decoding.engine.model.target_loader import read_vocab_size

        require_match(store, name, limits, model, None, read_vocab_size(model))
        log.warning(
            "datastore %s has no tokenizer, so whether it fits model %s cannot be checked; with another tokenizer's ids its "
            "drafts are rejected, and the text stays the same",
            name,
            model,
        )

    return checked_stores(names, deadline_ms, require_fit, watch, live)


@contextlib.contextmanager
def checked_stores(
    names: Sequence[str],
    deadline_ms: float | None,
    require_fit: Callable[[Retriever, str], None],
    watch: bool = False,
    live: LiveStore | None = None,
) -> Iterator[list[Retriever]]:
    """The datastores of these names or URLs, closed at the end. Several datastores of one server are opened as one.

    Raises the errors of ``open_named`` and ``require_fit``.
    """
    with contextlib.ExitStack() as stack:
        stores: list[Retriever] = []
        for name in merge_urls(names):
            stores.append(open_named(name, deadline_ms, watch))
            stack.callback(stores[-1].close)
            require_fit(stores[-1], name)
        if live is not None:
            require_fit(live, str(live.path))
            stores.append(live)
        yield stores


def open_named(name: str, deadline_ms: float | None, watch: bool = False) -> Retriever:
    """Open the datastore in a folder or at a URL. A warning is logged if the folder has unpublished documents.

    Raises the errors of ``open_datastore`` and ``connect``.
    """
    if is_remote(name):
        return open_store(name, None, None if deadline_ms is None else deadline_ms / 1000)
    store = open_store(name, "auto", watch=watch)
    if (note := unpublished_note(name)) is not None:
        log.warning("%s: not searched: %s", name, note)
    return store
