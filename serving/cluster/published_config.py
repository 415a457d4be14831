"""The published datastores of a cluster: a folder or URL for each, or one for each of their shards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from suffolk.build_index.split import MAX_SHARDS
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.file_systems import is_storage_url
from suffolk.serving.net.url import check_store_name

Source = str | tuple[str, ...]
"""A folder or URL, or those of the shards."""


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
