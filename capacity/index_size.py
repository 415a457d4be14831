"""The size of a datastore, from its file format (docs/reference/file-format.md)."""

from __future__ import annotations

import math

POSITION_BYTES = 4
DIRECTORY_STEP, KEY_BYTES = 128, 16
CHUNK_BYTES = 4 << 20
FIXED_BYTES = 256 + 6 * 24 + 32
"""Header, section table and trailer."""


def token_width(vocab_size: int) -> int:
    """Bytes of a token in a file."""
    return 2 if vocab_size <= 0xFFFF else 3 if vocab_size <= 0xFFFFFF else 4


def segment_bytes(tokens: float, documents: float, vocab_size: int, table_bytes: float) -> float:
    """Bytes of a segment file. ``tokens``: without separators. ``table_bytes``: of a document in the document table."""
    body = (
        (tokens + documents) * token_width(vocab_size)
        + tokens * POSITION_BYTES
        + (vocab_size + 1) * 4
        + (documents + 1) * 4
        + documents * table_bytes
        + math.ceil(tokens / DIRECTORY_STEP) * KEY_BYTES
    )
    return FIXED_BYTES + body + 4 * math.ceil(body / CHUNK_BYTES)


def directory_bytes(tokens: float, segments: int, vocab_size: int) -> float:
    """Bytes of the directories, and of the first rank of each token id in each segment. Every search reads these sections."""
    return tokens / DIRECTORY_STEP * KEY_BYTES + segments * (vocab_size + 1) * 4
