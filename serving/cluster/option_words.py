"""The options of a cluster's servers as words of a command line. Imports no Ray: they are checked before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def option_words(options: Mapping[str, Any]) -> Iterator[str]:
    """The words that give ``options`` to ``suffolk serve`` or ``suffolk worker``."""
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            text = str(each).lower() if isinstance(each, bool) else str(each)
            yield f"--set={name.replace('-', '_')}={text}"
