"""The options of ``suffolk lookup``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from suffolk.cli.options import setting
from suffolk.cli.options.setting import REQUIRED, argument, option
from suffolk.datastore.context_query import DEFAULT_MAX_DEPTH, DEFAULT_MAX_MATCH, DEFAULT_MIN_MATCH
from suffolk.datastore.retriever import MAX_NODES
from suffolk.datastore.settings import ABOVE_0, Within
from suffolk.serving.decoding.drafters.retrieval.limits import Length

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
