"""Remove a token from an access file. A running server refuses its next call; calls that run may end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.options import setting
from suffolk.cli.options.setting import REQUIRED, argument
from suffolk.serving.net.access_file import remove_token

EXAMPLES = """
suffolk token remove access.toml ci
suffolk token remove access.toml 0f3a5c7e9b1d2468"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    file: Path = argument(REQUIRED, "the access file", metavar="FILE.toml")
    name: str = argument(REQUIRED, "name or id of the token", metavar="NAME")


def run(options: Options) -> int:
    """Remove the token; returns 0."""
    remove_token(options.file, options.name)
    return 0
