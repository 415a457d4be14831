"""Schemas of requests, in the form of the grammar library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.sampling.grammar_compiler import JSON_OPTIONS


def schema_text(schema: Mapping[str, Any], strict: bool) -> str:
    """``schema`` as JSON. Unless ``strict``, keywords that the grammar library does not know are ignored, as OpenAI's API does.

    Raises InvalidArgument if the schema's ``x-guidance`` is no object.
    """
    own = schema.get("x-guidance", {})
    if not isinstance(own, dict):
        raise InvalidArgument(
            f"x-guidance of a schema is of type {type(own).__name__}; it must be an object of options"
        )
    return json.dumps({**schema, "x-guidance": {**JSON_OPTIONS, "lenient": not strict, **own}})
