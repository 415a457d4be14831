"""Parses the URLs of draft services and workers.

    grpc://HOST:PORT/NAME             plaintext
    grpcs://HOST:PORT/NAME?ca=FILE    TLS; with cert=FILE and key=FILE the client presents its own certificate
    grpc+unix:///PATH/OF/SOCKET#NAME  a unix socket

NAME is a datastore of a draft service: STORE, or TENANT/STORE. NAME may be omitted if the caller sees only one datastore.
Several datastores are searched as one: STORE:WEIGHT,STORE (``messages/choices.py``). ``clients/fanout/topology.py`` parses URLs
of several servers. The URL of a worker has no NAME. ``deadline_ms=N`` (as in grpc://host:7700/wiki?deadline_ms=10) sets the
deadline of drafts and lookups. ``token_file=FILE`` names a file with the caller's token in its first line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from suffolk.datastore.checks import check_keys
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.file_systems import is_storage_url
from suffolk.datastore.limits import MAX_NAME

SCHEMES = ("grpc", "grpcs", "grpc+unix")
DRAFT_PORT = 7700
WORKER_PORT = 7710
"""Default ports of URLs and of the command line."""
_FORMS = {
    DRAFT_PORT: "grpc://HOST:PORT/NAME, grpcs://HOST:PORT/NAME?ca=FILE or grpc+unix:///PATH#NAME",
    WORKER_PORT: "grpc://HOST:PORT, grpcs://HOST:PORT?ca=FILE or grpc+unix:///PATH",
}
DEFAULT_TENANT = "default"
NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_NAME}}}")
"""A tenant, or a datastore without its tenant."""


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """The parts of a URL.

    Attributes:
        target: gRPC target: HOST:PORT or unix:/PATH.
        name: name of a datastore; empty for the server's only datastore.
        deadline: seconds that a draft or lookup may take; None if the URL does not set it.
        tls: whether the connection is encrypted.
        ca, cert, key: PEM files, as in ``TlsFiles``.
        token_file: file with the caller's token; empty for none.
    """

    target: str
    name: str = ""
    deadline: float | None = None
    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    token_file: str = ""


def is_url(text: str) -> bool:
    """Whether ``text`` is a URL of any scheme, rather than a path."""
    return "://" in text


def is_topology_file(text: str) -> bool:
    """Whether ``text`` is the path of a file that lists servers (``fanout/topology.py``)."""
    path = text.partition("?")[0]
    return not is_url(text) and path.endswith(".json") and not Path(path).is_dir()  # a datastore may have any name


def is_remote(text: str) -> bool:
    """Whether ``text`` is a URL or a topology file, rather than the folder of a datastore."""
    return is_url(text) or is_topology_file(text)


def names_several(text: str) -> bool:
    """Whether ``text`` is a topology file, or a URL with several servers: grpc://HOST:PORT,HOST:PORT/NAME."""
    hosts = re.split("[/?#]", text.partition("://")[2])[0] if text.startswith(("grpc://", "grpcs://")) else ""
    return is_topology_file(text) or "," in hosts or "+" in hosts


def parse_url(url: str, default_port: int = DRAFT_PORT) -> ServiceUrl:
    """Parse a URL.

    Raises InvalidArgument if the URL has none of the three forms. ``default_port``: DRAFT_PORT or WORKER_PORT.
    """
    forms = _FORMS[default_port]
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidArgument(f"{url}: {error}; the forms are {forms}") from None
    if parts.scheme not in SCHEMES:
        copy = f"; copy a datastore in storage first: suffolk pull {url} DIR" if is_storage_url(url) else ""
        raise InvalidArgument(f"{url}: not the URL of a draft service or worker; the forms are {forms}{copy}")
    options = _options(url, parts)
    deadline = parse_deadline(url, options.pop("deadline_ms", None))
    if parts.scheme == "grpc+unix":
        if parts.netloc or len(parts.path) < 2:
            raise InvalidArgument(f"{url}: the URL of a unix socket has three slashes; the forms are {forms}")
        return ServiceUrl(
            f"unix:{unquote(parts.path)}", unquote(parts.fragment), deadline, token_file=options.get("token_file", "")
        )
    name = unquote(parts.path.strip("/"))
    if (
        not parts.hostname
        or any(each.count("/") > (default_port == DRAFT_PORT) for each in name.split(","))
        or parts.fragment
        or parts.username is not None
    ):
        raise InvalidArgument(f"{url}: malformed URL; the forms are {forms}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return ServiceUrl(f"{host}:{port or default_port}", name, deadline, parts.scheme == "grpcs", **options)


def describe_url(url: str, default_port: int = DRAFT_PORT) -> str:
    """``url`` for messages, with a note if the default port is used."""
    parts = urlsplit(url)
    if parts.scheme == "grpc+unix" or parts.port:
        return url
    return f"{url} (default port {default_port})"


def parse_deadline(url: str, text: str | None) -> float | None:
    """The option ``deadline_ms`` of ``url`` in seconds; None without ``text``. Raises InvalidArgument if it is out of range."""
    if text is None:
        return None
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = -1.0
    if not 0 < milliseconds <= 600_000:
        raise InvalidArgument(
            f"{url}: ", Field("deadline_ms"), f" is {text!r}; it must be a number above 0 and at most 600000"
        )
    return milliseconds / 1000


def _options(url: str, parts: SplitResult) -> dict[str, str]:
    known = ("deadline_ms", "token_file", *(("ca", "cert", "key") if parts.scheme == "grpcs" else ()))
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    check_keys(url, options, known)
    for key in options:
        if not options[key]:
            raise InvalidArgument(f"{url}: {key} is empty; give it a value or leave it out")
    if ("cert" in options) != ("key" in options):
        raise InvalidArgument(f"{url}: cert and key belong together; give both or neither")
    return options


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
