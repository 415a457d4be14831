"""Options of an adapter, from the host's configuration, and the datastores that they name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from suffolk.datastore.context_query import DEFAULT_MAX_DEPTH, DEFAULT_MAX_MATCH
from suffolk.datastore.errors import InvalidArgument, SuffolkError
from suffolk.datastore.retriever import Retriever
from suffolk.datastore.settings import Within, check_fields
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.datastore.watched_datastore import WatchedDatastore
from suffolk.serving.clients.remote_datastore import MAX_DEADLINE
from suffolk.serving.decoding.drafters.retrieval.limits import MAX_TOKENS, Limits, require_match
from suffolk.serving.net.messages.choices import merge_urls
from suffolk.serving.net.url import is_remote
from suffolk.serving.open_store import connect_any


@dataclass(frozen=True, slots=True)
class IntegrationOptions:
    """Sources and limits of drafts.

    Attributes:
        datastores: folders and URLs (``grpc://HOST:PORT/NAME``). All are searched.
        prompt_lookup: whether to draft from the request's own text too.
        deadline_ms: deadline of one draft-service call. None: the URL's deadline, else 20 ms, or a pass if that is
            longer.
        max_match: longest context suffix to look up, in tokens.
        max_depth: longest draft from a datastore, in tokens. Drafts from the request's own text may be twice as long.
        remember: live datastore to which every finished answer is appended in the background, without its prompt, and which is
            searched too: a URL, or a folder that no other process appends to. None: no answer is remembered.
        row_cost: time per additional verified token, as a share of a one-token pass. None: measured while running.
        neural_tokens: beside a neural drafter of the host, the most tokens that it drafts in a step. None: the host's setting.

    Raises:
        InvalidArgument: a value is of another type or out of its range, or there is nothing to draft from.
    """

    datastores: tuple[str, ...] = ()
    prompt_lookup: bool = True
    deadline_ms: Annotated[float, Within(0.1, MAX_DEADLINE * 1000)] | None = None
    max_match: Annotated[int, Within(1, MAX_TOKENS)] = DEFAULT_MAX_MATCH
    max_depth: Annotated[int, Within(1, MAX_TOKENS)] = DEFAULT_MAX_DEPTH
    remember: str | None = None
    row_cost: Annotated[float, Within(0.0, 1.0)] | None = None
    neural_tokens: Annotated[int, Within(1, MAX_TOKENS)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.remember is not None and self.remember not in self.datastores:
            object.__setattr__(self, "datastores", (*self.datastores, self.remember))
        if not self.datastores and not self.prompt_lookup:
            raise InvalidArgument(
                "datastores is empty and prompt_lookup is False; name a datastore, or leave prompt_lookup on"
            )

    @property
    def limits(self) -> Limits:
        return Limits(max_match=self.max_match, max_depth=self.max_depth)


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
