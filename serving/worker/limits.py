"""Limits of the worker's fields. ``SamplingSettings`` has further limits. gRPC and HTTP check the same limits.

Checks raise InvalidArgument with the field, its value, the limit and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.datastore.arguments import check_size
from suffolk.datastore.checks import check_range
from suffolk.datastore.limits import MAX_NAME

MAX_TEXT = 1 << 20
"""Characters of a prompt, or of all messages of a chat together."""
MAX_PROMPT = 1 << 20
"""Token ids of a prompt. The worker's capacity is usually smaller."""
MAX_TOKENIZED = 1 << 17
"""Tokens of a text to tokenize or detokenize. Converting them holds Python's lock for 10 ms."""
MAX_MESSAGES = 1024
"""Messages of a chat."""
MAX_NEW_TOKENS = 1 << 20
"""Tokens to generate."""
MAX_STOPS = 16
"""Stop strings."""
MAX_STOP = 256
"""Characters of one stop string."""
MAX_STOP_TOKENS = 1024
"""Token ids that end a text."""
MAX_BAD_WORDS = 1024
"""Banned token sequences (``bad_words``)."""
MAX_BAD_WORD = 64
"""Tokens of one banned sequence."""
MAX_DATASTORES = 1024
"""Names of datastores to search."""
MAX_BIASES = 1024
"""Tokens with a logit bias."""
MAX_REQUEST_BYTES = 8 << 20
"""Bytes of one request of any worker: twice the size of a prompt at four bytes per character or token."""
MAX_LISTS = 1 << 16
"""Opening brackets and braces of an HTTP body, also inside texts."""
MAX_REPLY_BYTES = 1 << 20
"""Size of one reply: the tokens and text of one step."""
SLOW_CLIENT_SECONDS = 60.0
"""Seconds that a client may take to read one reply."""


def body_bytes(capacity: int) -> int:
    """Bytes of one HTTP body to a worker whose slots hold ``capacity`` tokens. Parsing JSON holds Python's lock."""
    return min(MAX_REQUEST_BYTES, (1 << 20) + 64 * capacity)


def check_new_tokens(field: str, count: int) -> None:
    check_range(field, count, 1, MAX_NEW_TOKENS)


def check_stops(field: str, stops: Sequence[str]) -> None:
    check_range(field, len(stops), 0, MAX_STOPS, ": the number of strings")
    for index, stop in enumerate(stops):
        check_size(f"{field}[{index}]", len(stop), MAX_STOP, "characters")


def check_messages(field: str, count: int) -> None:
    check_range(field, count, 1, MAX_MESSAGES, ": the number of messages")


def check_chat(field: str, roles: Sequence[str], contents: Sequence[str]) -> None:
    check_messages(field, len(roles))
    for index, role in enumerate(roles):
        check_size(f"{field}[{index}].role", len(role), MAX_NAME, "characters")
    check_size(field, sum(map(len, contents)), MAX_TEXT, "characters", "shorten the prompt")
