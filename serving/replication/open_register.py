"""Opens the register that a URL names."""

from __future__ import annotations

from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.file_systems import is_storage_url
from suffolk.serving.replication.register import Register, StoredRegister


def open_register(url: str, name: str) -> Register:
    """The register of the store ``name`` below ``url``.

    Raises:
        InvalidArgument: the URL is malformed.
        Unsupported: the storage has no conditional writes. Others as ``RemoteFolder``.
    """
    place = f"{url.rstrip('/')}/{name}"
    if url.startswith(("etcd://", "etcds://")):
        from suffolk.serving.replication.etcd_register import EtcdRegister

        return EtcdRegister(place)
    if not is_storage_url(url):
        raise InvalidArgument(
            f"register is {url!r}; give s3://BUCKET/FOLDER, file:///FOLDER or etcd://HOST:PORT/PREFIX"
        )
    register = StoredRegister(place)
    register.require_conditional_writes()
    return register
