"""Errors of the library in the words of a command line: a field that an option sets is called as the option is."""

from __future__ import annotations

import re
from collections.abc import Mapping


def name_options(message: str, labels: Mapping[str, str]) -> str:
    """``message`` with fields called by their ``labels``: ``held_out is 2`` becomes ``--held-out is 2``.

    A name of one word may be a plain word of the message. It counts as a field only where the message begins with it.
    """
    joined = [re.escape(name) for name in labels if "_" in name]
    plain = [re.escape(name) for name in labels if "_" not in name]
    patterns = [rf"(?<![\w./='\"-])({'|'.join(joined)})(?![\w./='\"-])"] if joined else []
    patterns += [rf"\A({'|'.join(plain)})(?= is |: )"] if plain else []
    for pattern in patterns:
        message = re.sub(pattern, lambda found: labels[found[0]], message)
    return message
