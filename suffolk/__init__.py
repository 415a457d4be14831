"""Suffolk: faster decoding from text you already have.

    import suffolk
    store = suffolk.open("store/")                      # or "grpc://host:port/name"
    store.lookup(ids)                                   # Match(length=7, count=42)
    store.draft(ids, max_nodes=16)                      # DraftTree

The names here are the public interface; everything behind them may move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from datastore import ContextIndex, Datastore, DraftTree, Match, Retriever, Source, __version__, open_datastore
from datastore.errors import InvalidArgument, SuffolkError

if TYPE_CHECKING:
    from serving.draft_service.client import RemoteDatastore

__all__ = [
    "ContextIndex",
    "Datastore",
    "DraftTree",
    "Match",
    "Retriever",
    "Source",
    "SuffolkError",
    "__version__",
    "open",
]


def open(path_or_url: str, residency: str = "mmap") -> Datastore | RemoteDatastore:
    """A datastore on disk, or one behind a draft service (``grpc://host:port/name``): the same methods.

    ``residency`` says how files on disk are kept in memory (``datastore.open_datastore``); for a service, its server decides.

    Raises:
        NotFound, Corruption, Unsupported, ResourceExhausted: see ``datastore.open_datastore``.
        InvalidArgument, Unavailable: see ``serving.draft_service.client.connect``.
    """
    if path_or_url.startswith(("grpc://", "grpc+unix://", "grpcs://")):
        from serving.draft_service.client import connect  # gRPC is loaded only by those who use it

        if residency != "mmap":
            raise InvalidArgument(f"residency is {residency!r} for {path_or_url}; give it to 'suffolk serve' there")
        return connect(path_or_url)
    return open_datastore(path_or_url, residency)
