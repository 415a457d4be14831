"""Look a text up in a datastore. The output shows the longest ending of the text that occurs, how
often it occurs, what follows it, and in which documents.

STORE is a datastore's folder, or the URL of a draft service: grpc://HOST:PORT/NAME,
grpcs://HOST:PORT/NAME?ca=FILE or grpc+unix:///PATH#NAME. NAME,NAME searches several as one, and
shows how often each of them holds a continuation. Only whole tokens match. The output shows the
text's tokens; '|' marks the beginning of the match. Continuations are a tree with the count of each
branch. On a terminal its lines are cut to the width. A document's id is what 'suffolk delete --id'
takes.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated

from suffolk.cli.lookup_lines import shown
from suffolk.cli.lookup_report import make_report
from suffolk.cli.options import setting
from suffolk.cli.options.setting import REQUIRED, argument, option
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.merged import MergedDatastore
from suffolk.datastore.retriever import DEFAULT_MAX_DEPTH, DEFAULT_MAX_MATCH, DEFAULT_MIN_MATCH, MAX_NODES, Retriever
from suffolk.serving.draft_service.choices import merge_urls
from suffolk.serving.drafters.retrieval.limits import Length
from suffolk.serving.engine.checked_fields import ABOVE_0, Within
from suffolk.serving.transport.url import is_url, parse_url

EXAMPLES = """
suffolk lookup STORE "def __init__(self"
suffolk lookup STORE --top 3 --occurrences 20 "raise ValueError("
suffolk lookup STORE --ids 351 4598 42 --json
suffolk lookup code/ --also wiki/ "the list of"
suffolk lookup grpc://127.0.0.1:7700/code "def __init__(self"
suffolk lookup grpc+unix:///run/suffolk.sock --ids 464 3139 286 --draft --max-nodes 8"""
MAX_SHOWN = 1000
DEADLINE = 5.0
"""Default deadline of a remote call, in seconds. It is long, because no decoding step waits for the call."""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    store: str = argument(REQUIRED, "a datastore's folder, or grpc://HOST:PORT/NAME", metavar="STORE")
    also: tuple[str, ...] = option(
        (), "another datastore, which is searched together with STORE; may be repeated", metavar="STORE"
    )
    text: str | None = argument(
        None, "the context; only its last --max-match tokens are looked up", metavar="TEXT", blank=True
    )
    ids: tuple[int, ...] = option((), "the context as token ids, in place of TEXT", metavar="ID", several=True)
    max_match: Length = option(DEFAULT_MAX_MATCH, "longest match, in tokens")
    min_match: Length = option(DEFAULT_MIN_MATCH, "shortest match, in tokens")
    max_depth: Length = option(DEFAULT_MAX_DEPTH, "length of continuations, in tokens")
    top: Annotated[int, Within(0, MAX_SHOWN)] = option(8, "number of continuations to show")
    occurrences: Annotated[int, Within(0, MAX_SHOWN)] = option(5, "number of occurrences to show")
    draft: bool = option(False, "show the draft tree that a decoder would get")
    max_nodes: Annotated[int, Within(1, MAX_NODES)] | None = option(
        None, "most nodes of the draft tree (default: 64, or 4 for each continuation)"
    )
    deadline: Annotated[float, Within(ABOVE_0)] | None = option(
        None,
        f"seconds that a call to a draft service may take (default: deadline_ms of the URL, or {DEADLINE:g})",
        metavar="SECONDS",
    )
    json: bool = option(False, "print one JSON object")


def run(options: Options) -> int:
    if (options.text is None) == (not options.ids):
        raise InvalidArgument("give either a text or --ids, for example: suffolk lookup STORE 'import numpy as'")
    with ExitStack() as stack:
        report = make_report(_open(options, stack), options)
    text = json.dumps(report, indent=2, ensure_ascii=False) if options.json else shown(report, options.draft)
    print(text)
    return 0


def _open(options: Options, stack: ExitStack) -> Retriever:
    """The datastores of ``options`` as one, until ``stack`` is closed."""
    names = merge_urls([options.store, *options.also])
    if options.deadline is not None and not any(map(is_url, names)):
        raise InvalidArgument(f"--deadline {options.deadline:g} has an effect only with a draft service; leave it out")
    stores = [_open_one(name, options.deadline) for name in names]
    for store in stores:
        stack.callback(store.close)
    if len(stores) == 1:
        return stores[0]
    short = [store.name for store in stores]
    return MergedDatastore(dict(zip(short if len(set(short)) == len(short) else names, stores, strict=True)))


def _open_one(name: str, deadline: float | None) -> Retriever:
    if not is_url(name):
        return open_datastore(name)
    from suffolk.serving.draft_service.client import connect  # loads gRPC

    return connect(name, deadline or parse_url(name).deadline or DEADLINE)
