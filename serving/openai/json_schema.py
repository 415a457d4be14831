"""Converts JSON schemas of requests for the grammar library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.sampling.grammar_compiler import JSON_OPTIONS


def schema_text(schema: Mapping[str, Any], strict: bool) -> str:
    """``schema`` as JSON.

    Unless ``strict`` is set, keywords unknown to the grammar library are ignored, as in OpenAI's API.

    Raises InvalidArgument if the schema's ``x-guidance`` is not an object.
    """
    own = schema.get("x-guidance", {})
    if not isinstance(own, dict):
        raise InvalidArgument(
            f"x-guidance of a schema is of type {type(own).__name__}; it must be an object of options"
        )
    return json.dumps({**schema, "x-guidance": {**JSON_OPTIONS, "lenient": not strict, **own}})
