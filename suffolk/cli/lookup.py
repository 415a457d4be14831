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

from suffolk.cli.lookup_lines import shown
from suffolk.cli.lookup_options import DEADLINE, Options
from suffolk.cli.lookup_options import EXAMPLES as EXAMPLES
from suffolk.cli.lookup_report import make_report
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.merged import MergedDatastore
from suffolk.datastore.retriever import Retriever
from suffolk.serving.net.messages.choices import merge_urls
from suffolk.serving.net.url import is_remote
from suffolk.serving.open_store import connect_any


def run(options: Options) -> int:
    if (options.text is None) == (not options.ids):
        raise InvalidArgument("give either a text or --ids, for example: suffolk lookup STORE 'import numpy as'")
    if options.text == "":
        raise InvalidArgument("TEXT: it is empty; give a text, for example: suffolk lookup STORE 'import numpy as'")
    with ExitStack() as stack:
        report = make_report(_open(options, stack), options)
    text = json.dumps(report, indent=2, ensure_ascii=False) if options.json else shown(report, options.draft)
    print(text)
    return 0


def _open(options: Options, stack: ExitStack) -> Retriever:
    """The datastores of ``options`` as one, until ``stack`` is closed."""
    names = merge_urls([options.store, *options.also])
    if options.deadline is not None and not any(map(is_remote, names)):
        raise InvalidArgument(f"--deadline {options.deadline:g} has an effect only with a draft service; leave it out")
    stores = [_open_one(name, options.deadline) for name in names]
    for store in stores:
        stack.callback(store.close)
    if len(stores) == 1:
        return stores[0]
    short = [store.name for store in stores]
    return MergedDatastore(dict(zip(short if len(set(short)) == len(short) else names, stores, strict=True)))


def _open_one(name: str, deadline: float | None) -> Retriever:
    if not is_remote(name):
        return open_datastore(name)
    return connect_any(name, deadline or (None if "deadline_ms=" in name else DEADLINE))
