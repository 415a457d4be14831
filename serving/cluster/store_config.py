"""The settings of a cluster's datastores. A published datastore has one source, or one for each shard. All other
datastores are live stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from suffolk.build_index.split import MAX_SHARDS
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.file_systems import is_storage_url
from suffolk.datastore.settings import Within, check_fields
from suffolk.serving.net.url import check_store_name

LIVE_OPTIONS = ("live", "live_tokenizer", "register", "copies", "peer")
"""Options of ``suffolk serve`` that the cluster sets from these settings."""
Source = str | tuple[str, ...]
"""A folder or URL, or one for each shard."""


@dataclass(frozen=True)
class LiveConfig:
    """A live store. A store with a single shard has a copy on each store server. Several shards have servers of their
    own.

    Attributes:
        tokenizer: folder of the tokenizer, or of a model, on every node.
        copies: copies that an append needs before it is acknowledged.
        shards: parts of the store. A group lies in one of them.
        spare: copies of a shard beyond ``copies``, if there are enough nodes. Only with several shards.
    """

    tokenizer: str
    copies: Annotated[int, Within(1, 16)] = 2
    shards: Annotated[int, Within(1, MAX_SHARDS)] = 1
    spare: Annotated[int, Within(0, 7)] = 1

    def __post_init__(self) -> None:
        check_fields(self, " of a live store")
        if self.shards == 1 and self.spare != 1:
            raise InvalidArgument(
                f"spare of a live store is {self.spare}, and shards is 1, with a copy on each store server; leave spare out"
            )
        if self.copies + self.spare < 2:
            raise InvalidArgument(
                "copies of a live store is 1 and spare is 0; a shard has at least two copies: raise one"
            )
        if not Path(self.tokenizer).is_absolute():
            raise InvalidArgument(f"tokenizer of a live store is {self.tokenizer!r}; give an absolute path")


def check_remember(options: Mapping[str, Any], live: Mapping[str, LiveConfig]) -> None:
    """``options``: the options of workers. Raises InvalidArgument: ``remember`` is neither a live store nor a path nor a URL."""
    if "remember" in options and (name := str(options["remember"])) not in live and "/" not in name:
        known = f"one of live of stores ({', '.join(live)})" if live else "a name in live of stores"
        raise InvalidArgument(f"options of workers: remember is {name!r}; give {known}, or a URL")


def check_live(live: Mapping[str, LiveConfig], datastores: Mapping[str, object], port: int) -> None:
    """Raises InvalidArgument: a name is malformed or taken, there are too many shards, or the settings of several live
    stores conflict."""
    if not isinstance(live, Mapping):
        raise InvalidArgument(f"live of stores is {live!r}; it must be an object of names and their settings")
    for name in live:
        check_store_name(str(name), f"live of stores: {name}")
        if name in datastores:
            raise InvalidArgument(f"live of stores: {name} is also in datastores; give one of them another name")
    if live and not port:
        raise InvalidArgument("port of stores is 0, and live stores need a fixed one, at which they find their copies")
    if (shards := sum(each.shards for each in live.values())) > MAX_SHARDS:
        raise InvalidArgument(f"live of stores: {', '.join(live)} have {shards} shards; at most {MAX_SHARDS} in all")
    for key in ("tokenizer", "copies"):
        values = {name: getattr(each, key) for name, each in live.items() if each.shards == 1}
        if len({*values.values()}) > 1:  # options of 'suffolk serve' hold for all of its live stores
            listed = ", ".join(f"{name} {value}" for name, value in values.items())
            raise InvalidArgument(f"live of stores: {key} differs ({listed}); give live stores with one shard the same")


def check_published(datastores: Mapping[str, Source], port: int) -> None:
    """Raises InvalidArgument: a name or a source is malformed, or shards are too few, too many, or without a fixed ``port``."""
    if sum(len(each) for each in datastores.values() if isinstance(each, tuple)) > MAX_SHARDS:
        raise InvalidArgument(f"datastores of stores has more than {MAX_SHARDS} shards in all; make fewer")
    for name, source in datastores.items():
        check_store_name(str(name), f"datastores of stores: {name}")
        for each in sources_of(source):
            if not is_storage_url(str(each)) and not Path(str(each)).is_absolute():
                raise InvalidArgument(f"datastores of stores: {name} is {each!r}; give an absolute path or a URL")
        if isinstance(source, tuple):
            if len({*source}) < max(2, len(source)):
                raise InvalidArgument(
                    f"datastores of stores: {name} has {len(source)} shards; list at least two, each once, or give one source"
                )
            if not port:
                raise InvalidArgument(
                    f"port of stores is 0, and the shards of {name} need fixed ones; give the first one"
                )


def sources_of(source: Source) -> tuple[str, ...]:
    """The folders or URLs of a datastore, one for each shard."""
    return source if isinstance(source, tuple) else (source,)
