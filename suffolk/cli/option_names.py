"""Renames fields in the library's error messages to the options that set them."""

from __future__ import annotations

import re
from collections.abc import Mapping


def name_options(message: str, labels: Mapping[str, str]) -> str:
    """``message`` with fields called by their ``labels``: ``held_out is 2`` becomes ``--held-out is 2``.

    A label that is in the message already stays. A name of one word counts as a field only at the start of the message,
    because it may be a plain word elsewhere.
    """
    whole = [re.escape(label) for name, label in labels.items() if name in label and name != label]
    joined = [re.escape(name) for name in labels if "_" in name]
    plain = [re.escape(name) for name in labels if "_" not in name]
    patterns = whole
    patterns += [rf"(?<![\w./='\"-])(?:{'|'.join(joined)})(?![\w./='\"-])"] if joined else []
    patterns += [rf"\A(?:{'|'.join(plain)})(?= is |: )"] if plain else []
    return re.sub("|".join(patterns), lambda found: labels.get(found[0], found[0]), message)
