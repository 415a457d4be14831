"""Limits of the worker's fields, besides those of the sampling settings themselves."""

from __future__ import annotations

MAX_TEXT = 1 << 20
"""Characters of a prompt, or of all messages of a chat together."""
MAX_PROMPT = 1 << 20
"""Token ids of a prompt; the worker's capacity is nearly always smaller."""
MAX_MESSAGES = 1024
"""Messages of a chat."""
MAX_NEW_TOKENS = 1 << 20
"""Tokens to generate."""
MAX_STOPS = 16
"""Stop strings."""
MAX_STOP = 256
"""Characters of one stop string."""
MAX_BAD_WORDS = 1024
"""Token sequences that are never completed."""
MAX_BAD_WORD = 64
"""Tokens of one of them."""
MAX_DATASTORES = 1024
"""Names of datastores to search."""
MAX_REQUEST_BYTES = 8 << 20
"""Size of one request: four bytes per character or token, twice."""
MAX_REPLY_BYTES = 1 << 20
"""Size of one reply: the tokens and text of one step."""
SLOW_CLIENT_SECONDS = 60.0
"""Time that a client may take to read one reply."""
