"""Which requests of browsers a server answers.

Without tokens, everything that reaches the port may call: a browser on the machine too. A page can let its own name resolve to the
server's address, and then read answers (DNS rebinding); the header Host has that name. A page can also send a request whose answer
it cannot read, such as an append; the header Origin names the page.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.net.endpoint import Endpoint

_NAME = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
_HOST = re.compile(r"(?P<name>[^\[\]:/@]+|\[[^\[\]/@]+\])(:[0-9]+)?")
"""The header Host: a name or an address, and a port."""


@dataclass(frozen=True, slots=True)
class HostRules:
    """Which requests of browsers are answered. A host is allowed if it is a loopback name or address, or in ``hosts``.

    Attributes:
        hosts: further allowed hosts, in lower case and without brackets.
        checks_host: whether the host of every request must be allowed.
        checks_origin: whether requests of other web pages are refused. A page may ask if its host is allowed, if it is from the
            request's own host, or if its origin is in ``origins``.
        origins: origins of pages; "*" for all.
    """

    hosts: Collection[str]
    checks_host: bool
    checks_origin: bool
    origins: Sequence[str] = ()

    def refusal(self, host: str, origin: str | None) -> str | None:
        """Why a request with these headers is refused; None if it is answered."""
        if self.checks_host and not self._allows(host):
            return f"host {host[:256]!r} is not this server's; call it by a loopback address, or name the host in allowed_host"
        if not self.checks_origin or origin is None or "*" in self.origins or origin in self.origins:
            return None
        page = origin.partition("://")[2]
        if page and (page.lower() == host.lower() or self._allows(page)):
            return None
        return f"origin {origin[:256]!r}: pages of other hosts may not call this server; name the page's host in allowed_host"

    def _allows(self, host: str) -> bool:
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = found["name"].strip("[]")
        return name in self.hosts or Endpoint(name).is_private()


def check_hosts(hosts: Sequence[str]) -> None:
    """Raises InvalidArgument for a text that is not a host alone."""
    for index, host in enumerate(hosts):
        if not _NAME.fullmatch(host):
            raise InvalidArgument(
                Field("allowed_host"),
                f"[{index}] is {host!r}; write a name or an address in lower case, without scheme or port",
            )
