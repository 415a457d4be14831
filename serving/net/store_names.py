"""Names of datastores on a server: TENANT/STORE, or STORE for a datastore of the tenant ``default``."""

from __future__ import annotations

import re

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.limits import MAX_NAME

DEFAULT_TENANT = "default"
NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_NAME}}}")
"""A tenant, or a datastore without its tenant."""


def tenant_of(name: str) -> str:
    """The tenant of a datastore."""
    return name.rpartition("/")[0] or DEFAULT_TENANT


def short_name(name: str) -> str:
    """The shortest form of a name: ``default/wiki`` becomes ``wiki``. Other names stay, malformed ones too."""
    return name.removeprefix(f"{DEFAULT_TENANT}/")


def check_store_name(name: str, field: str) -> str:
    """``short_name`` of a well-formed name. Raises InvalidArgument, with the name of ``field`` in its message."""
    tenant, slash, store = name.rpartition("/")
    if not NAME.fullmatch(store) or (slash and not NAME.fullmatch(tenant)) or len(name) > MAX_NAME:
        raise InvalidArgument(
            Field(field),
            f": {name!r} cannot name a datastore; write NAME or TENANT/NAME with letters, digits, '.', '_' and '-', at most "
            f"{MAX_NAME} characters in all",
        )
    return short_name(name)
