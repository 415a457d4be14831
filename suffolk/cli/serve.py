"""Serve datastores to decoding workers: gRPC suffolk.v1.DraftService, and HTTP/JSON with metrics on
a second port. A newly published generation of a datastore is served within a second. Clients append
to live datastores while these are searched. A datastore in object storage (s3://, gs://, hf://,
file://) is copied to --cache first, and followed.

The command prints one line when it takes requests: serving NAME,NAME on grpc HOST:PORT, http
HOST:PORT. SIGTERM or Ctrl-C lets running requests finish and ends with exit code 0; a second signal
ends the command at once. SIGHUP reads certificates and settings again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from suffolk.build_index.progress import show_progress
from suffolk.cli.live_options import LiveOptions
from suffolk.cli.options.setting import Configurable
from suffolk.cli.server_options import ServerOptions, SettingsReload, is_on, server_settings, switch_option
from suffolk.cli.store_lines import unpublished_note
from suffolk.datastore.datastore import RESIDENCIES
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.file_systems import is_storage_url
from suffolk.datastore.retriever import Retriever
from suffolk.datastore.settings import Within, argument, option, rare
from suffolk.datastore.watched_datastore import WatchedDatastore
from suffolk.serving.net.grpc_server import share_arenas
from suffolk.serving.net.server import ignore_sighup, run_until_signal
from suffolk.serving.net.url import check_store_name
from suffolk.serving.store.draft_service.server import MAX_MIN_COUNT, DraftServer, DraftServerConfig
from suffolk.serving.store.draft_service.service import DraftService
from suffolk.serving.store.storage.mirror import POLL_SECONDS, MirroredDatastore

LOG = logging.getLogger("suffolk.server")
EXAMPLES = """
suffolk serve wiki/                                         gRPC on 127.0.0.1:7700, HTTP on 127.0.0.1:7701
suffolk serve code=/data/code-v3 wiki/ --listen unix:/run/suffolk.sock --residency warm
suffolk serve wiki/ --listen 0.0.0.0:7700 --tls-cert server.pem --tls-key server.key --tls-client-ca clients.pem
suffolk serve wiki/ --live chat/ --live-tokenizer MODEL_FOLDER          clients append to chat while it is searched
suffolk serve --live chat/ --register s3://bucket/register --peer grpc://10.0.0.2:7700          one of several copies of chat
suffolk serve code=s3://bucket/code --cache /var/cache/suffolk          a copy that follows the newest generation there
suffolk serve --config serve.toml                           stores = ["wiki/"] and more in the file
curl -d '{"contexts": [[1, 2, 3]]}' http://127.0.0.1:7701/v1/draft"""


@dataclass(frozen=True, kw_only=True)
class Options(ServerOptions, LiveOptions, Configurable):
    stores: tuple[str, ...] = argument(
        (),
        "a datastore's folder or URL in storage; NAME, or TENANT/NAME, defaults to the folder's name",
        metavar="[NAME=]STORE",
    )
    cache: Path | None = option(
        None, "folder for the copies of datastores in storage, one folder for each", metavar="DIR"
    )
    poll_seconds: Annotated[float, Within(1, 86400)] = option(
        POLL_SECONDS, "seconds between two checks for a new generation in storage", metavar="SECONDS"
    )
    residency: str = option(
        "auto",
        "how files come into memory. 'mmap' reads pages when queries touch them; 'warm' also reads all files in the background; "
        "'locked' reads all files first, and keeps them; 'auto' is 'warm' if the files take at most a quarter of free memory, "
        "else 'mmap'",
        choices=RESIDENCIES,
    )
    search_threads: Annotated[int, Within(0, 1024)] = rare(
        0, "threads for the contexts of one request; 0 is one for each core"
    )
    min_count: Annotated[int, Within(1, MAX_MIN_COUNT)] = option(
        1, "hide text that fewer documents than this hold: shorten matches, and leave out continuations"
    )
    playground: str = switch_option("web page at the HTTP address that looks texts up while they are typed")
    occurrences: str = switch_option(
        "show callers who may read a datastore where a text occurs: ids and metadata of documents, and the text around it"
    )
    max_concurrent: Annotated[int, Within(1, 1024)] = rare(
        32, "the most requests at a time; further requests are refused"
    )


def run(options: Options) -> None:
    """Serve until a signal stops it."""
    ignore_sighup()
    share_arenas()
    options.start_logs("suffolk-serve")
    config = _config(options)
    if options.register and not options.live:
        raise InvalidArgument("--register is given without --live; name the live datastores that the servers copy")
    if options.peer and not options.register:
        raise InvalidArgument("--peer is given without --register; name the place that records which copy leads")
    with contextlib.ExitStack() as stack:
        stores: dict[str, Retriever] = {}
        live = parse_stores(options.live)
        opening = options.residency, options.search_threads
        for name, path in parse_stores([*options.stores, *options.live]).items():
            stores[name] = options.open_live(name, path, *opening) if name in live else _open(options, name, path)
            stack.callback(stores[name].close)
        server = DraftServer(config, stores)
        more = partial(_add_stores, server.service, stack, options, [*options.stores])
        live_settings = server_settings(server) | {"stores": more}
        server.reloads["the settings"] = SettingsReload(options, live_settings)
        run_until_signal(server)


def _config(options: Options) -> DraftServerConfig:
    config = DraftServerConfig(
        **options.server_fields(), max_concurrent=options.max_concurrent, min_count=options.min_count
    )
    shows_occurrences = is_on(options.occurrences, config, config.http, *config.listen)
    return replace(
        config, playground=is_on(options.playground, config, config.http), shows_occurrences=shows_occurrences
    )


def _add_stores(
    service: DraftService, stack: contextlib.ExitStack, options: Options, served: list[str], wanted: Sequence[str]
) -> None:
    """Serve the datastores of ``wanted`` that are not in ``served``, and add them there. Raises the errors of ``run``."""
    parse_stores([*served, *options.live, *(text for text in wanted if text not in served)])  # names must be free
    for text in wanted:
        if text not in served:
            [(name, path)] = parse_stores([text]).items()
            store = _open(options, name, path)
            stack.callback(store.close)
            service.add_datastore(name, store)
            served.append(text)
    if gone := [text for text in served if text not in wanted]:
        LOG.warning("reload: %s is still served; restart the server to remove it", ", ".join(gone))


def _open(options: Options, name: str, path: str) -> WatchedDatastore:
    """Follow the datastore in a folder or at a URL. If some of its documents are not served, log this.

    Raises InvalidArgument if a URL has no folder for its copy.
    """
    opening = options.residency, options.search_threads
    if not is_storage_url(path):
        store = WatchedDatastore(path, *opening)
        if (note := unpublished_note(path)) is not None:
            LOG.warning("%s: not served: %s", path, note)
        return store
    if options.cache is None:
        raise InvalidArgument(
            f"{path}: a datastore in storage is served from a copy; name a folder for it with --cache"
        )
    copy = options.cache / name.replace("/", "@")  # names have no "@", so no copy lies inside another copy
    with show_progress() as progress:
        return MirroredDatastore(path, copy, *opening, options.poll_seconds, progress)


def parse_stores(texts: Sequence[str]) -> dict[str, str]:
    """Map names to paths, from NAME=PATH or PATH. Raises InvalidArgument if a name is taken or does not fit into a URL."""
    stores: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or "://" in name or name.startswith((".", "/", "~")) or Path(text).is_dir():
            name, path = (
                text.rstrip("/").rpartition("/")[2] if is_storage_url(text) else Path(text).resolve().name,
                text,
            )
        if not path:
            raise InvalidArgument(f"{text}: there is no folder after '='; write NAME=PATH")
        name = check_store_name(name, text)
        if name in stores:
            raise InvalidArgument(
                f"{text}: {stores[name]} has the name {name!r} already; write NAME=PATH to give another"
            )
        stores[name] = path
    return stores
