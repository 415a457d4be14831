"""Tests token ids as bytes."""

from __future__ import annotations

import numpy as np
import pytest

from suffolk.datastore.errors import (
    InvalidArgument,
)
from suffolk.serving.net.tokens import pack_tokens, to_tokens, unpack_tokens


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([1.5], "array of float64; give a flat list of integers"),
        ([[1], [2]], "2-dimensional array"),
        ([1, [2]], "not a flat list of token ids"),
        ([True], "array of bool"),
        (["a"], "give a flat list of integers"),
        ([1 << 31], "beyond 32 bits"),
        ([1 << 70], "field"),
        (np.array([-1 << 40]), "beyond 32 bits"),
    ],
)
def test_bad_tokens(ids: list[int], text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        to_tokens(ids, "field")
    assert text in str(caught.value)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.uint32, np.int64, np.uint64, ">i4"])
def test_tokens_of_any_integer_type(dtype: str) -> None:
    tokens = to_tokens(np.array([0, 7, 99], dtype), "field")
    assert pack_tokens(tokens) == b"\0\0\0\0\7\0\0\0\x63\0\0\0"
    assert unpack_tokens(pack_tokens(tokens), "field").tolist() == [0, 7, 99]
    assert pack_tokens(to_tokens([], "field")) == b""
