"""Opens the datastores of an adapter."""

from __future__ import annotations

from pathlib import Path

from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.retriever import Retriever
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.datastore.watched_datastore import WatchedDatastore
from suffolk.serving.decoding.drafters.retrieval.limits import require_match
from suffolk.serving.integrations.options import IntegrationOptions
from suffolk.serving.net.messages.choices import merge_urls
from suffolk.serving.net.url import is_remote
from suffolk.serving.open_store import connect_any


def open_stores(
    options: IntegrationOptions, memory: Retriever | None, vocab_size: int, model: str, tokenizer: str | Path | None
) -> list[Retriever]:
    """The open datastores, each checked against the model. ``memory``: the open datastore of ``remember``."""
    mark = None if tokenizer is None or not options.datastores else fingerprint(load_tokenizer(tokenizer))
    deadline = None if options.deadline_ms is None else options.deadline_ms / 1000
    stores: list[Retriever] = []
    try:
        for name in merge_urls(options.datastores):
            store: Retriever
            if memory is not None and name == options.remember and not is_remote(name):
                store = memory
            else:
                store = connect_any(name, deadline) if is_remote(name) else WatchedDatastore(name, "auto")
            stores.append(store)
            require_match(store, name, options.limits, model, mark, vocab_size)
    except SuffolkError:
        for store in stores:
            store.close()  # ``memory`` is closed twice, and that is allowed
        raise
    return stores
