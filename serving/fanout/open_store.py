"""Opens a datastore by its folder or its address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.file_systems import is_storage_url
from suffolk.datastore.watched_datastore import WatchedDatastore
from suffolk.serving.transport.url import is_remote, names_several

if TYPE_CHECKING:
    from suffolk.serving.draft_service.client import RemoteDatastore
    from suffolk.serving.fanout.datastore import FanoutDatastore


def open_store(
    path_or_url: str | Path,
    residency: str | None = None,
    deadline: float | None = None,
    watch: bool = False,
    cache: str | Path | None = None,
) -> Datastore | RemoteDatastore | FanoutDatastore | WatchedDatastore:
    """A datastore on disk, a client of one behind a draft service, or a copy of one in storage.

    Arguments and errors as for ``suffolk.open``.
    """
    if isinstance(path_or_url, str) and is_storage_url(path_or_url):
        return _open_copy(path_or_url, residency or "mmap", watch, cache)
    if cache is not None:
        raise InvalidArgument(
            Field("cache"), f" is {str(cache)!r} for {path_or_url}; only a datastore in storage has one, leave it out"
        )
    if isinstance(path_or_url, str) and is_remote(path_or_url):
        if residency is not None:
            raise InvalidArgument(
                Field("residency"), f" is {residency!r} for {path_or_url}; give it to 'suffolk serve' there"
            )
        return connect_any(path_or_url, deadline)
    if deadline is not None:
        raise InvalidArgument(
            Field("deadline"), f" is {deadline!r} for {path_or_url}; only a service has one, leave it out"
        )
    return (WatchedDatastore if watch else open_datastore)(path_or_url, residency or "mmap")


def connect_any(address: str, deadline: float | None = None) -> RemoteDatastore | FanoutDatastore:
    """A client of the datastore behind a URL or a topology file. Arguments and errors as ``connect`` and ``connect_several``."""
    if names_several(address):
        from suffolk.serving.fanout.datastore import connect_several  # imports gRPC, which local stores do not need

        return connect_several(address, deadline)
    from suffolk.serving.draft_service.client import connect

    return connect(address, deadline)


def _open_copy(url: str, residency: str, watch: bool, cache: str | Path | None) -> Datastore | WatchedDatastore:
    if cache is None:
        raise InvalidArgument(
            f"{url}: a datastore in storage is searched in a copy; make one with 'suffolk pull', or name its folder as cache"
        )
    from suffolk.serving.storage.mirror import MirroredDatastore
    from suffolk.serving.storage.pull import pull

    if watch:
        return MirroredDatastore(url, cache, residency)
    pull(url, cache)
    return open_datastore(cache, residency)
