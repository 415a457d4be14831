"""A register in etcd, through its JSON gateway."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import parse_qs

from suffolk.datastore.errors import InvalidArgument, Unavailable
from suffolk.serving.replication.register import Entry, Leadership, decode, encode

SECONDS = 2.0
"""Deadline of one request to one of the hosts."""


class EtcdRegister:
    """A register at etcd://HOST:PORT,HOST:PORT/KEY, or etcds:// with ?ca=FILE, and ?cert=FILE&key=FILE. See ``Register``."""

    def __init__(self, url: str) -> None:
        """Raises InvalidArgument: ``url`` has no host or no key."""
        address, _, options = url.partition("?")
        scheme, _, rest = address.partition("://")
        hosts, _, key = rest.partition("/")
        if not hosts or not key:
            raise InvalidArgument(f"register is {url!r}; write etcd://HOST:PORT,HOST:PORT/PREFIX")
        self._url = address
        self._key = base64.b64encode(f"/{key}".encode()).decode()
        self._hosts = [f"{'https' if scheme == 'etcds' else 'http'}://{host}" for host in hosts.split(",")]
        self._tls = _tls(options) if scheme == "etcds" else None

    def read(self) -> Entry:
        """See ``Register``."""
        found = self._call("range", {"key": self._key}).get("kvs", ())
        for each in found:
            return Entry(int(each["mod_revision"]), decode(base64.b64decode(each["value"]), self._url))
        return Entry()

    def swap(self, version: int, value: Leadership) -> bool:
        """See ``Register``."""
        unchanged = {"key": self._key, "target": "MOD", "mod_revision": str(version)}
        put = {"request_put": {"key": self._key, "value": base64.b64encode(encode(value)).decode()}}
        return bool(self._call("txn", {"compare": [unchanged], "success": [put]}).get("succeeded"))

    def _call(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of the first host that gives one. Raises Unavailable: none does, or etcd refuses."""
        problems = []
        for host in self._hosts:
            request = urllib.request.Request(f"{host}/v3/kv/{method}", json.dumps(body).encode())
            try:
                with urllib.request.urlopen(request, timeout=SECONDS, context=self._tls) as reply:
                    return dict(json.loads(reply.read()))
            except (OSError, ValueError) as error:  # HTTPError is an OSError
                problems.append(f"{host}: {error}")
        raise Unavailable(f"{self._url}: etcd does not answer ({'; '.join(problems)}); check that it runs")


def _tls(options: str) -> ssl.SSLContext:
    named = {name: values[-1] for name, values in parse_qs(options).items()}
    context = ssl.create_default_context(cafile=named.get("ca"))
    if "cert" in named:
        context.load_cert_chain(named["cert"], named.get("key"))
    return context
