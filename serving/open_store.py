"""Opens a datastore by its folder or its address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from suffolk.datastore.appendable import Appendable
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.errors import Field, InvalidArgument, NotFound, PermissionDenied, SuffolkError
from suffolk.datastore.file_systems import is_storage_url
from suffolk.datastore.watched_datastore import WatchedDatastore
from suffolk.serving.net.identity import Role
from suffolk.serving.net.url import is_remote, is_url, names_several

if TYPE_CHECKING:
    from suffolk.serving.clients.fanout.datastore import FanoutDatastore
    from suffolk.serving.clients.remote_datastore import RemoteDatastore


def open_store(
    path_or_url: str | Path,
    residency: str | None = None,
    deadline: float | None = None,
    watch: bool = False,
    cache: str | Path | None = None,
) -> Datastore | RemoteDatastore | FanoutDatastore | WatchedDatastore:
    """Opens a datastore on disk, connects to a draft service, or copies a datastore from storage.

    The arguments and errors are those of ``suffolk.open``.
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


def open_appendable(name: str, tokenizer: str | Path | None = None, deadline: float | None = None) -> Appendable:
    """Open the live datastore behind a URL, or in a folder, which is made if it does not exist.

    Args:
        tokenizer: for a new datastore: a model's folder, a tokenizer.json or a hub name.
        deadline: seconds for a draft or lookup of a remote one; None: the URL's.

    Raises:
        NotFound: there is no datastore, and no tokenizer.
        Unsupported: the remote datastore takes no documents.
        PermissionDenied: the caller may not append there.
        Others as ``connect``, ``open_live_store``, ``create_live_store``.
    """
    if is_url(name):
        from suffolk.serving.clients.remote_datastore import connect

        store = connect(name, deadline)
        try:
            store.stats()
            if store.info()["role"] == str(Role.READ):
                raise PermissionDenied(
                    f"remember {name}: the caller has the role read there, and appends need append; name the file of another "
                    "token with ?token_file="
                )
        except SuffolkError:
            store.close()
            raise
        return store
    from suffolk.serving.store.live_store.identity import is_free
    from suffolk.serving.store.live_store.store import create_live_store, open_live_store

    if not is_free(Path(name)):
        return open_live_store(name)
    if tokenizer is None:
        raise NotFound(f"remember {name}: there is no datastore; make a live one there first")
    return create_live_store(name, tokenizer)


def _open_copy(url: str, residency: str, watch: bool, cache: str | Path | None) -> Datastore | WatchedDatastore:
    if cache is None:
        raise InvalidArgument(
            f"{url}: a datastore in storage is searched in a copy; make one with 'suffolk pull' "
            "(in Python, cache= names its folder)"
        )
    from suffolk.serving.store.storage.mirror import MirroredDatastore
    from suffolk.serving.store.storage.pull import pull

    if watch:
        return MirroredDatastore(url, cache, residency)
    pull(url, cache)
    return open_datastore(cache, residency)


def connect_any(address: str, deadline: float | None = None) -> RemoteDatastore | FanoutDatastore:
    """A client of the datastore behind a URL or a topology file. Arguments and errors as ``connect`` and ``FanoutDatastore``."""
    if names_several(address):
        # imports gRPC, which local stores do not need
        from suffolk.serving.clients.fanout.datastore import FanoutDatastore

        return FanoutDatastore(address, deadline)
    from suffolk.serving.clients.remote_datastore import connect

    return connect(address, deadline)
