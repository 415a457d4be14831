"""Which callers the front answers: the rules of a worker with the same options, at the front's address."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.net.config import HostRules, ServerConfig
from suffolk.serving.net.endpoint import Endpoint


def front_rules(front: Endpoint, options: Mapping[str, Any]) -> HostRules:
    """Which requests of browsers the front answers. ``options``: those of the workers.

    Raises:
        InvalidArgument: other machines can reach the front, and neither ``access`` nor ``insecure`` is among the options; or
            a host in ``allowed_host`` is malformed.
    """
    given = {name.replace("-", "_"): value for name, value in options.items()}
    access, insecure = given.get("access"), str(given.get("insecure")).lower() == "true"
    if not (front.is_private() or access or insecure):
        raise InvalidArgument(
            f"host of front: {front} would answer every machine that can reach it; give access or insecure in options of "
            "workers, or use 127.0.0.1"
        )
    loopback = Endpoint("127.0.0.1")
    server = ServerConfig(
        (loopback,),
        http=front,
        access=Path(str(access)) if access else None,
        insecure=True,  # decided above: the front has no TLS
        allowed_hosts=_texts(given.get("allowed_host")),
    )
    return server.host_rules(_texts(given.get("cors_origin")))


def _texts(value: Any) -> tuple[str, ...]:
    """The values of an option that may be given several times."""
    if value is None:
        return ()
    return tuple(str(each) for each in value) if isinstance(value, list) else (str(value),)
