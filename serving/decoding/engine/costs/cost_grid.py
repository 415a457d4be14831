"""The passes that ``suffolk profile`` measures."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.datastore.errors import InvalidArgument

SIZES = (1, 2, 4, 8, 16, 17, 32, 33, 64)
"""Rows per request. Powers of two are not enough, because kernels work in tiles of 16 or 32 rows, and costs jump at 17 and 33."""
MAX_ROWS = 256
"""Rows of the largest measured pass. Costs of larger passes are extrapolated with the last slope."""
Point = tuple[int, int, int]
"""Rows per request, requests, and cached tokens of each request."""


def grid(contexts: Sequence[int], slots: int, limit: int | None) -> list[Point]:
    """The points to measure: 1, 2, 4 ... ``slots`` requests, each with 1..64 rows and each number of cached tokens in ``contexts``.

    Raises:
        InvalidArgument: ``slots`` is not 1..MAX_ROWS, or a context is below 1 or leaves no room for the rows in ``limit`` tokens.
    """
    if not 1 <= slots <= MAX_ROWS:
        raise InvalidArgument(f"--slots is {slots}; it must be between 1 and {MAX_ROWS}")
    if limit is not None and limit <= SIZES[-1]:
        raise InvalidArgument(
            f"the model takes {limit} tokens, and 'suffolk profile' measures passes of {SIZES[-1]} rows after one token or more; "
            "start without it: decoding measures costs itself"
        )
    for context in contexts:
        if context < 1:
            raise InvalidArgument(f"--contexts: {context} cannot be measured; each must be 1 or more")
        if limit is not None and context + SIZES[-1] > limit:
            raise InvalidArgument(
                f"--contexts: {context} cannot be measured: the model takes {limit} tokens, {SIZES[-1]} of them for the rows; give "
                f"{limit - SIZES[-1]} at most"
            )
    batches = sorted({min(2**power, slots) for power in range(slots.bit_length() + 1)})
    return [
        (size, batch, context)
        for context in sorted(set(contexts))
        for batch in batches
        for size in SIZES
        if size * batch <= MAX_ROWS
    ]
