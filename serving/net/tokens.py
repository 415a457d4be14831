"""Packs token ids as bytes: int32, little-endian, without padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.datastore.context_query import Tokens
from suffolk.datastore.errors import Field, InvalidArgument

TOKEN = np.dtype("<i4")


def to_tokens(ids: Tokens, field: str) -> npt.NDArray[np.int32]:
    """``ids`` as int32[n]. Raises InvalidArgument if they are not a flat list of integers of 32 bits."""
    if isinstance(ids, np.ndarray) and ids.dtype == np.int32 and ids.ndim == 1:
        return ids.astype(np.int32, copy=False)
    try:
        array = np.asarray(ids)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(Field(field), f" is not a flat list of token ids: {error}") from None
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidArgument(
            Field(field), f" is a {array.ndim}-dimensional array of {array.dtype}; give a flat list of integers"
        )
    if array.size and not -(1 << 31) <= int(array.min()) <= int(array.max()) < 1 << 31:
        raise InvalidArgument(Field(field), " has a token id beyond 32 bits; token ids are 0..vocab_size-1")
    tokens: npt.NDArray[np.int32] = array.astype(np.int32)
    return tokens


def pack_tokens(tokens: npt.NDArray[np.int32]) -> bytes:
    return tokens.astype(TOKEN, copy=False).tobytes()


def unpack_tokens(data: bytes, field: str) -> npt.NDArray[np.int32]:
    """``data`` as int32[n], not copied. Raises as ``unpack``."""
    return unpack(data, TOKEN, field)


def unpack(data: bytes, kind: np.dtype[Any], field: str) -> npt.NDArray[Any]:
    """``data`` as an array, not copied. Raises InvalidArgument if it holds no whole number of entries."""
    if len(data) % kind.itemsize:
        raise InvalidArgument(
            Field(field), f" has {len(data)} bytes; it must be a multiple of {kind.itemsize}, little-endian"
        )
    return np.frombuffer(data, kind)
