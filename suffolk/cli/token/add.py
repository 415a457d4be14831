"""Add a token to an access file, and print it. The file is made if it is missing.

The token is shown only once: the file holds its hash. Roles are read (drafts, lookups, generation,
info), append (read, and adds documents) and admin (append, deletes documents, and sees the sources of
drafted tokens). A role holds in one tenant, or with '*' in all. Metrics need read in '*'.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.options import setting
from suffolk.cli.options.setting import REQUIRED, argument, option
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.net.access_file import add_token, parse_roles

EXAMPLES = """
suffolk token add access.toml alice                          reads datastores of the tenant default
suffolk token add access.toml ci --role acme=append --role default=read > ci.token
suffolk token add access.toml prometheus --role '*=read'     what /metrics needs
suffolk serve wiki/ --access access.toml"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    file: Path = argument(REQUIRED, "the access file", metavar="FILE.toml")
    name: str = argument(REQUIRED, "name of the token's owner, for logs and for 'suffolk token remove'", metavar="NAME")
    role: tuple[str, ...] = option(("default=read",), "TENANT=ROLE; may be repeated", metavar="TENANT=ROLE")


def run(options: Options) -> int:
    """Print the token; returns 0."""
    if "=" in options.name:
        raise InvalidArgument(f"NAME is {options.name!r}; give roles with --role, and a name without '='")
    print(add_token(options.file, options.name, parse_roles(options.role, "--role")))
    print("suffolk: shown only once; keep it in a file that others cannot read", file=sys.stderr)
    return 0
