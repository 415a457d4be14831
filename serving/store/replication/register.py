"""The register of a replicated store: who leads it, and which copies are in sync. The register changes by
compare-and-swap alone.

``obstacle`` decides which copy may lead, so that no acknowledged change is lost.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol
from urllib.parse import parse_qs

from suffolk.datastore.errors import Corruption, Field, InvalidArgument, NotFound, Unavailable, Unsupported
from suffolk.datastore.file_systems import is_storage_url
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.serving.store.replication.messages import ReplicaStatus

FOLDER = "leadership"
KEPT = 16
"""Earlier values that stay in storage, for people to read."""
MOST_ENDS = 16
ETCD_SECONDS = 2.0
"""Deadline of one request to one of etcd's hosts."""
_NAME = re.compile(r"(\d{12,})\.json")
BY_ORDER = "or see 'suffolk promote --accept-loss'"


@dataclass(frozen=True, slots=True)
class End:
    """Where an epoch ended: the position of the next leader when it began, and the digest of its documents."""

    epoch: int
    position: int
    digest: int


@dataclass(frozen=True, slots=True)
class Leadership:
    """The value of a register.

    Attributes:
        epoch: rises with each leader. 0: there was none yet.
        leader: id of the copy that leads.
        run: id of the leader's process. A process that was started later does not continue this leadership.
        in_sync: ids of the copies that have all acknowledged changes, including the leader. The next leader is one of
            these.
        ends: ends of the last epochs.
    """

    epoch: int = 0
    leader: str = ""
    run: str = ""
    in_sync: tuple[str, ...] = ()
    ends: tuple[End, ...] = ()

    def succeeded(self, leader: str, run: str, in_sync: tuple[str, ...], position: int, digest: int) -> Leadership:
        """The value after another copy has begun to lead, at ``position``."""
        ends = (*self.ends, End(self.epoch, position, digest))[-MOST_ENDS:]
        return Leadership(self.epoch + 1, leader, run, in_sync, ends)


@dataclass(frozen=True, slots=True)
class Entry:
    """A value, and its version. 0: the register is empty."""

    version: int = 0
    value: Leadership = Leadership()


class Register(Protocol):
    """One value that several processes change. Thread-safe. Methods raise SuffolkError if the system does not answer."""

    def read(self) -> Entry:
        """The current value."""
        ...

    def swap(self, version: int, value: Leadership) -> bool:
        """Replace the value of ``version``. Returns whether ``value`` is the current value now. After False or an error, read the
        register."""
        ...


def open_register(url: str, name: str) -> Register:
    """The register of the store ``name`` below ``url``.

    Raises:
        InvalidArgument: the URL is malformed.
        Unsupported: the storage has no conditional writes. Others as ``RemoteFolder``.
    """
    place = f"{url.rstrip('/')}/{name}"
    if url.startswith(("etcd://", "etcds://")):
        return EtcdRegister(place)
    if not is_storage_url(url):
        raise InvalidArgument(
            Field("register"), f" is {url!r}; give s3://BUCKET/FOLDER, file:///FOLDER or etcd://HOST:PORT/PREFIX"
        )
    register = StoredRegister(place)
    register.require_conditional_writes()
    return register


class StoredRegister:
    """A register at a URL of storage with conditional writes. Each version is a file, and the highest version counts."""

    def __init__(self, url: str) -> None:
        """Raises InvalidArgument, Unsupported: ``url`` is not a place in a known kind of storage."""
        self._remote = RemoteFolder(url)

    def read(self) -> Entry:
        """See ``Register``. Raises Corruption: the value cannot be read."""
        while True:
            numbers = self._numbers()
            if not numbers:
                return Entry()
            try:
                return Entry(numbers[-1], decode(self._remote.read(_name(numbers[-1])), self._remote.url))
            except NotFound:
                continue  # later versions were written meanwhile, and this version was removed

    def swap(self, version: int, value: Leadership) -> bool:
        """See ``Register``."""
        name, content = _name(version + 1), encode(value, writer=secrets.token_hex(8))
        # a write is repeated if its answer was lost, and may then find its own file
        if not self._remote.create(name, content) and self._remote.read(name) != content:
            return False
        numbers = self._numbers()
        for number in numbers[: -KEPT - 1]:
            self._remote.remove(_name(number))
        # a late writer may create a number that was removed long ago; higher numbers then exist
        return numbers[-1] == version + 1

    def require_conditional_writes(self) -> None:
        """Raises Unsupported: a conditional write replaces an existing file."""
        name = f"{FOLDER}/probe-{secrets.token_hex(8)}"
        self._remote.create(name, b"first")
        replaced = self._remote.create(name, b"second")
        self._remote.remove(name)
        if replaced:
            raise Unsupported(
                f"{self._remote.url}: this storage has no conditional writes; use s3://, file:// or etcd://"
            )

    def _numbers(self) -> list[int]:
        found = map(_NAME.fullmatch, self._remote.sizes(FOLDER))
        return sorted(int(match[1]) for match in found if match is not None)


class EtcdRegister:
    """A register at etcd://HOST:PORT,HOST:PORT/KEY, or etcds:// with ?ca=FILE, and ?cert=FILE&key=FILE. See ``Register``."""

    def __init__(self, url: str) -> None:
        """Raises InvalidArgument: ``url`` has no host or no key."""
        address, _, options = url.partition("?")
        scheme, _, rest = address.partition("://")
        hosts, _, key = rest.partition("/")
        if not hosts or not key:
            raise InvalidArgument(Field("register"), f" is {url!r}; write etcd://HOST:PORT,HOST:PORT/PREFIX")
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
        """The answer of the first host that answers. Raises Unavailable: no host answers, or etcd refuses."""
        problems = []
        for host in self._hosts:
            request = urllib.request.Request(f"{host}/v3/kv/{method}", json.dumps(body).encode())
            try:
                with urllib.request.urlopen(request, timeout=ETCD_SECONDS, context=self._tls) as reply:
                    return dict(json.loads(reply.read()))
            except (OSError, ValueError) as error:  # HTTPError is an OSError
                problems.append(f"{host}: {error}")
        raise Unavailable(f"{self._url}: etcd does not answer ({'; '.join(problems)}); check that it runs")


def encode(value: Leadership, **more: str) -> bytes:
    """``value`` as JSON, with ``more`` fields that readers ignore."""
    return json.dumps(asdict(value) | more).encode()


def decode(content: bytes, place: str) -> Leadership:
    """The inverse of ``encode``. Raises Corruption: ``content`` is no value. ``place`` is for the message."""
    try:
        fields = json.loads(content)
        fields.pop("writer", None)
        value = Leadership(**fields)
        return replace(value, in_sync=tuple(value.in_sync), ends=tuple(End(**each) for each in fields["ends"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corruption(f"{place}: the register is damaged ({error}); restore the last file of {FOLDER}/") from error


def _name(number: int) -> str:
    return f"{FOLDER}/{number:012d}.json"


def _tls(options: str) -> ssl.SSLContext:
    named = {name: values[-1] for name, values in parse_qs(options).items()}
    context = ssl.create_default_context(cafile=named.get("ca"))
    if "cert" in named:
        context.load_cert_chain(named["cert"], named.get("key"))
    return context


def obstacle(
    name: str,
    value: Leadership,
    own: ReplicaStatus,
    failure: str | None,
    intact: bool,
    found: Mapping[str, ReplicaStatus],
) -> str:
    """Why the copy ``own`` of the store ``name`` may not lead next; empty if it may lead.

    Args:
        value: the register's value.
        failure: why its log takes no changes; None if it does.
        intact: False if the copy differed from its leader, and could not take another id yet.
        found: by id, the states of the other copies that answer.
    """
    if failure is not None:
        return failure
    if not value.epoch:
        if own.position == 1:
            return ""
        return f"{name} has documents, and the register has no leader; choose one with 'suffolk promote --accept-loss'"
    if own.id not in value.in_sync:
        return f"{name} has no leader, and this copy is not in sync; start the others, {BY_ORDER}"
    if own.compared:
        return ""
    if not intact:
        return f"{name} has other documents than its leader had"
    return _obstacle_after_restart(name, value, own, found)


def _obstacle_after_restart(
    name: str, value: Leadership, own: ReplicaStatus, found: Mapping[str, ReplicaStatus]
) -> str:
    """A disk may have lost documents meanwhile. So all copies in sync must answer, and the copy with the most changes, the
    highest ``position``, leads."""
    others = [each for each in value.in_sync if each != own.id]
    if away := [each for each in others if each not in found]:
        copies = ", ".join(away)
        return f"{name} has no leader, and this copy was started again; start the copies {copies} too, {BY_ORDER}"
    if any(found[each].compared for each in others):
        return f"{name} has no leader yet"
    if max(((found[each].position, each) for each in others), default=(0, "")) > (own.position, own.id):
        return f"{name} has no leader yet; another copy has more changes"
    if value.ends and own.position < value.ends[-1].position:
        return f"{name}: no copy in sync has the changes below {value.ends[-1].position}; restore one, {BY_ORDER}"
    return ""
