"""Connects to a datastore by its address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suffolk.serving.net.url import names_several

if TYPE_CHECKING:
    from suffolk.serving.clients.fanout.datastore import FanoutDatastore
    from suffolk.serving.clients.remote_datastore import RemoteDatastore


def connect_any(address: str, deadline: float | None = None) -> RemoteDatastore | FanoutDatastore:
    """A client of the datastore behind a URL or a topology file. Arguments and errors as ``connect`` and ``connect_several``."""
    if names_several(address):
        # imports gRPC, which local stores do not need
        from suffolk.serving.clients.fanout.datastore import connect_several

        return connect_several(address, deadline)
    from suffolk.serving.clients.remote_datastore import connect

    return connect(address, deadline)
