"""The options of servers with copies of one live store: where its register is, and where the other copies are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from suffolk.build_index.on_ray.nodes import RayNode
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.cluster.config import StoresConfig


def require_register(stores: StoresConfig, copies: int) -> None:
    """Raises InvalidArgument: live stores have several copies, and there is no place for a register."""
    if copies > 1 and not stores.register_url:
        raise InvalidArgument(
            f"register of stores is missing, and live stores have {copies} copies; give the URL of a folder in storage, such as "
            "s3://BUCKET/register, or of etcd"
        )


def replica_words(stores: StoresConfig, copies: Mapping[str, str], node: RayNode, shard: str = "") -> Iterator[str]:
    """The options of the server on ``node`` of those with ``copies``, node -> HOST:PORT. None for a single server.

    ``shard``: the key of the shard of the store, if it has several.
    """
    if len(copies) > 1:
        yield f"--register={stores.register_url.rstrip('/')}{shard and '/'}{shard}"
        yield from (f"--peer={stores.url(address)}" for other, address in copies.items() if other != node.name)
