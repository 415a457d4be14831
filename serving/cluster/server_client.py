"""Files with which the servers of a cluster are called: by each other, the front, ``suffolk cluster status``, and
readers of topology files."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import check_fields
from suffolk.serving.net.tls import TlsFiles, check_files

_NEEDED = {"access": ("token_file", "cert"), "tls_client_ca": ("cert",)}
"""Option of a server -> fields of ``ServerClient``. Callers of a server with the option need one of the fields."""


@dataclass(frozen=True)
class ServerClient:
    """Paths of files, the same on every node; empty for none.

    Attributes:
        token_file: has the token that is sent.
        ca: certificate of the authority that signed the servers' certificates; empty for the system's authorities.
        cert, key: the caller's certificate.
    """

    token_file: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""

    def given(self) -> dict[str, str]:
        """The paths by name."""
        return {name: path for name, path in asdict(self).items() if path}

    def check(self, of: str, options: Mapping[str, Any]) -> None:
        """Raises InvalidArgument: a path is not absolute, only one of cert and key is given, or there is a file for TLS although
        servers with these ``options`` use no TLS.

        ``of``: stores or workers, for messages.
        """
        check_fields(self, f" of client of {of}")
        for name, path in self.given().items():
            if not Path(path).is_absolute():
                raise InvalidArgument(f"{name} of client of {of} is {path!r}; it must be an absolute path")
        if bool(self.cert) != bool(self.key):
            raise InvalidArgument(f"cert and key of client of {of} belong together; give both or neither")
        files = [name for name in self.given() if name != "token_file"]
        if files and not options.get("tls_cert"):
            raise InvalidArgument(
                f"client of {of} has {files[0]}, and options of {of} no ",
                Field("tls_cert"),
                "; add ",
                Field("tls_cert"),
                " and ",
                Field("tls_key"),
                ", or leave it out",
            )

    def require(self, of: str, options: Mapping[str, Any]) -> None:
        """Raises InvalidArgument: servers with these ``options`` would refuse the client."""
        for option, needed in _NEEDED.items():
            if options.get(option) and not any(name in self.given() for name in needed):
                raise InvalidArgument(
                    f"options of {of} has {option}, and client of {of} no {' and no '.join(needed)}: workers could not call "
                    "them; add it"
                )

    def url(self, address: str, name: str, options: Mapping[str, Any]) -> str:
        """The URL of datastore ``name`` on the server at ``address``. Without a name, the server's own URL.
        ``options``: of the server."""
        scheme = "grpcs" if options.get("tls_cert") else "grpc"
        return f"{scheme}://{address}/{name}" + (f"?{urlencode(given, safe='/')}" if (given := self.given()) else "")

    def https(self) -> ssl.SSLContext:
        """The context of an HTTPS client. Raises NotFound, PermissionDenied, InvalidArgument: a file cannot be used."""
        check_files(TlsFiles(self.cert, self.key, self.ca))
        context = ssl.create_default_context(cafile=self.ca or None)
        if self.cert:
            context.load_cert_chain(self.cert, self.key)
        return context
