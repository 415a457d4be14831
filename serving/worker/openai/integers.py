"""Integers of request bodies. A whole float such as 8.0 counts as one, because clients in some languages write all numbers so."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

NO_LIMIT = -1
"""Asks for as many tokens as fit, as clients of llama.cpp and LM Studio do."""
RANDOM = -1
"""Asks for a random seed, as in vLLM and llama.cpp."""


def _whole(value: Any) -> Any:
    """A whole float as an integer; other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _given(seed: Any) -> Any:
    """``seed``, or None if it is ``RANDOM``."""
    return None if seed == RANDOM else seed


Int = Annotated[int, BeforeValidator(_whole)]
Count = Annotated[Int, Field(ge=1)]
Seed = Annotated[Annotated[Int, Field(ge=-(1 << 63), lt=1 << 63)] | None, BeforeValidator(_given)]
TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
"""Never a float: a prompt has many, and each would be checked in Python."""


def no_limit(value: Any) -> Any:
    """``value``, or None if it is ``NO_LIMIT``."""
    return None if value == NO_LIMIT else value
