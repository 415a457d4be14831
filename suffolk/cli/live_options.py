"""The options of datastores that clients append to."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from suffolk.cli.options.setting import Options
from suffolk.datastore.errors import Field, InvalidArgument, NotFound, SuffolkError
from suffolk.datastore.settings import Within, option, rare
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.store.live_store.identity import is_free, stored_tokenizer
from suffolk.serving.store.live_store.log import DURABILITIES, INTERVAL
from suffolk.serving.store.live_store.settings import DEFAULT_GROUP_TOKENS, EVICTIONS, LiveSettings
from suffolk.serving.store.live_store.store import LiveStore, create_live_store, open_live_store
from suffolk.serving.store.replication.follower import open_replica
from suffolk.serving.store.replication.peer import Peer
from suffolk.serving.store.replication.register import open_register
from suffolk.serving.store.replication.replicated_store import DEFAULT_MAX_LAG, ReplicaSettings

LOG = logging.getLogger("suffolk.server")


@dataclass(frozen=True, kw_only=True)
class LiveOptions(Options):
    """Datastores that clients append to."""

    GROUP = "live datastores"
    live: tuple[str, ...] = option(
        (),
        "folder of a datastore that clients append to; made if it does not exist; may be repeated",
        metavar="[NAME=]STORE",
    )
    live_tokenizer: str | None = option(
        None,
        "tokenizer of new live datastores: a model's folder, a tokenizer.json or a hub name. Existing ones must have the same",
        metavar="MODEL",
    )
    durability: str = option(
        INTERVAL,
        "when an append is acknowledged. 'always': once it is on disk; 'interval': at most 100 ms before that; 'none': the system "
        "decides when it reaches the disk. Appends survive the end of the process in any case",
        choices=DURABILITIES,
    )
    live_tokens: Annotated[int, Within(0, 1 << 50)] = rare(
        0, "the most appended tokens that a live datastore holds, in memory and in files; 0 is no limit"
    )
    live_bytes: Annotated[int, Within(0, 1 << 50)] = rare(
        0, "the most bytes of memory for the documents of a live datastore; 0 is no limit"
    )
    live_seconds: Annotated[int, Within(0, 1 << 40)] = rare(
        0, "age in seconds at which documents are removed; 0 keeps them"
    )
    live_group_tokens: Annotated[int, Within(1, 1 << 50)] = rare(
        DEFAULT_GROUP_TOKENS,
        "the most tokens of each group of a live datastore; its oldest documents are removed first",
    )
    live_evict: str = rare(
        EVICTIONS[0],
        "what goes first if a live datastore has too many tokens or bytes. 'age': the oldest documents; 'use': the groups that "
        "were queried or appended to the longest ago, then the oldest other documents",
        choices=EVICTIONS,
    )
    register: str | None = option(
        None,
        "place that records which copy of a live datastore leads: s3://BUCKET/FOLDER, file:///FOLDER, or etcd://HOST:PORT/PREFIX",
        metavar="URL",
    )
    peer: tuple[str, ...] = option(
        (), "with --register: another server with copies of the live datastores; may be repeated", metavar="URL"
    )
    copies: Annotated[int, Within(1, 16)] = option(
        2, "with --register: copies that an append or a deletion needs before it is acknowledged"
    )
    max_lag: str = rare(
        f"{DEFAULT_MAX_LAG:g}",
        "with --register: seconds after which a copy refuses queries if it does not know that it is in sync; 'none': never",
    )

    def open_live(self, name: str, path: str, residency: str, threads: int) -> LiveStore:
        """Open the live datastore ``name`` in the folder ``path``, or create it.

        Raises:
            NotFound: there is no datastore, and no tokenizer to create one.
            InvalidArgument: the datastore has another tokenizer. Other errors are those of ``open_live_store``.
        """
        settings = LiveSettings(
            durability=self.durability,
            max_tokens=self.live_tokens,
            max_bytes=self.live_bytes,
            max_group_tokens=self.live_group_tokens,
            ttl_seconds=self.live_seconds,
            evict=self.live_evict,
            residency=residency,
            threads=threads,
        )
        is_new, tokenizer = is_free(Path(path)), self.live_tokenizer
        if is_new and tokenizer is None:
            raise NotFound(f"live {path}: there is no datastore; add --live-tokenizer MODEL to make one")
        if not is_new and tokenizer is not None:
            _require_tokenizer(Path(path), tokenizer)
        if self.register is not None:
            register = open_register(self.register, name)
            replicas = ReplicaSettings(self.copies, parse_max_lag(self.max_lag))
            peers = [Peer(url, name) for url in self.peer]
            return open_replica(Path(path), settings, register, replicas, peers, tokenizer)
        return create_live_store(path, tokenizer, settings=settings) if is_new else open_live_store(path, settings)


def _require_tokenizer(path: Path, tokenizer: str) -> None:
    """Raises InvalidArgument if ``tokenizer`` is not the tokenizer of the datastore in ``path``.

    A tokenizer that cannot be loaded is logged: the datastore has a copy of its own.
    """
    try:
        found = fingerprint(load_tokenizer(tokenizer))
    except SuffolkError as error:
        LOG.warning("live %s: --live-tokenizer is not compared with the datastore's tokenizer: %s", path, error)
        return
    if found != stored_tokenizer(path):
        raise InvalidArgument(
            f"live {path}: it has another tokenizer than --live-tokenizer {tokenizer}; leave it out, or name a new folder"
        )


def parse_max_lag(text: str) -> float | None:
    """The value of max_lag; None for 'none'. Raises InvalidArgument if it is neither 'none' nor a number of 1 to 86400."""
    try:
        seconds = None if text == "none" else float(text)
    except ValueError:
        seconds = 0.0
    if seconds is not None and not 1 <= seconds <= 86_400:
        raise InvalidArgument(Field("max_lag"), f" is {text!r}; give seconds from 1 to 86400, or 'none'")
    return seconds
