"""The bounds of every field of the worker's requests, beside those that sampling settings have themselves.

All checks raise InvalidArgument with the field, its value, the limit and what to do. They hold no state.
"""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.transport.limits import MAX_NAME, MAX_NODES, check_range

MAX_TEXT = 1 << 20
"""Characters of a prompt, or of all messages of a chat together."""
MAX_PROMPT = 1 << 20
"""Token ids of a prompt; the worker's capacity is the lower bound nearly always."""
MAX_MESSAGES = 1024
"""Messages of a chat."""
MAX_NEW_TOKENS = 1 << 20
"""Tokens to generate."""
MAX_STOPS = 16
"""Stop strings."""
MAX_STOP = 256
"""Characters of one stop string."""
MAX_BAD_WORDS = 1024
"""Sequences that may not be completed."""
MAX_BAD_WORD = 64
"""Tokens of one of them."""
MAX_REQUEST_BYTES = 8 << 20
"""Size of one request: four bytes a character or token, and as much again."""
MAX_REPLY_BYTES = 1 << 20
"""Size of one reply: the tokens and text of one step."""
PATIENCE = 60.0
"""Seconds that a reply waits for a client that does not read."""


def check_text(field: str, size: int) -> None:
    if size > MAX_TEXT:
        raise InvalidArgument(f"{field} has {size} characters; the limit is {MAX_TEXT}; shorten the prompt")


def check_prompt(size: int) -> None:
    if size > MAX_PROMPT:
        raise InvalidArgument(f"token_ids has {size} tokens; the limit is {MAX_PROMPT}; shorten the prompt")


def check_messages(count: int) -> None:
    if not 1 <= count <= MAX_MESSAGES:
        raise InvalidArgument(f"chat.messages: there are {count}; give 1 to {MAX_MESSAGES}")


def check_chat(roles: Sequence[str], characters: int) -> None:
    for place, role in enumerate(roles):
        check_name(f"chat.messages[{place}].role", role)
    check_text("chat", characters)


def check_name(field: str, name: str) -> None:
    if len(name) > MAX_NAME:
        raise InvalidArgument(f"{field} has {len(name)} characters; the limit is {MAX_NAME}")


def check_new_tokens(count: int) -> None:
    check_range("sampling.max_new_tokens", count, 1, MAX_NEW_TOKENS)


def check_stops(stops: Sequence[str]) -> None:
    if len(stops) > MAX_STOPS:
        raise InvalidArgument(f"sampling.stop: there are {len(stops)} strings; the limit is {MAX_STOPS}")
    for place, stop in enumerate(stops):
        if len(stop) > MAX_STOP:
            raise InvalidArgument(f"sampling.stop[{place}] has {len(stop)} characters; the limit is {MAX_STOP}")


def check_bad_words(count: int) -> None:
    if count > MAX_BAD_WORDS:
        raise InvalidArgument(f"sampling.bad_words: there are {count}; the limit is {MAX_BAD_WORDS}")


def check_bad_word(field: str, size: int) -> None:
    check_range(f"{field}: the number of tokens", size, 1, MAX_BAD_WORD)


def check_nodes(max_nodes: int, most: int) -> None:
    """``most``: the worker's own bound, 1..MAX_NODES."""
    check_range("max_nodes", max_nodes, 1, min(most, MAX_NODES))
