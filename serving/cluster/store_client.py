"""How a cluster's stores are called: by workers, each other, ``suffolk cluster status`` and readers of the topology file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.checked_fields import check_fields

_NEEDED = {"access": ("token_file", "cert"), "tls_client_ca": ("cert",)}
"""Option of ``suffolk serve`` -> what its callers need, one of them."""


@dataclass(frozen=True)
class StoreClient:
    """Paths of files, the same on every node; empty for none.

    Attributes:
        token_file: has the token that is sent.
        ca: certificate of the authority that signed those of the stores; without it, the authorities of the system count.
        cert, key: the own certificate.
    """

    token_file: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        check_fields(self, " of client of stores")
        for name, path in self.given().items():
            if not Path(path).is_absolute():
                raise InvalidArgument(f"{name} of client of stores is {path!r}; it must be an absolute path")
        if bool(self.cert) != bool(self.key):
            raise InvalidArgument("cert and key of client of stores belong together; give both or neither")

    def given(self) -> dict[str, str]:
        """The paths by name."""
        return {name: path for name, path in asdict(self).items() if path}

    def check(self, options: Mapping[str, Any]) -> None:
        """Raises InvalidArgument: stores with these ``options`` would refuse the client."""
        for option, needed in _NEEDED.items():
            if options.get(option) and not any(name in self.given() for name in needed):
                raise InvalidArgument(
                    f"options of stores has {option}, and client of stores no {' and no '.join(needed)}: workers could not call "
                    "them; add it"
                )
        files = [name for name in self.given() if name != "token_file"]
        if files and not options.get("tls_cert"):
            raise InvalidArgument(
                f"client of stores has {files[0]}, and options of stores no tls_cert; add tls_cert and tls_key, or leave it out"
            )

    def url(self, address: str, name: str, options: Mapping[str, Any]) -> str:
        """The URL of datastore ``name`` on the store at HOST:PORT, which has these ``options``."""
        scheme = "grpcs" if options.get("tls_cert") else "grpc"
        return f"{scheme}://{address}/{name}" + (f"?{urlencode(given, safe='/')}" if (given := self.given()) else "")
