"""Schemas of requests, in the form of the grammar library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from suffolk.serving.engine.sampling.grammar_compiler import JSON_OPTIONS


def schema_text(schema: Mapping[str, Any], strict: bool) -> str:
    """``schema`` as JSON. Unless ``strict``, keywords that the grammar library does not know are ignored, as OpenAI's API does."""
    own = schema.get("x-guidance", {})
    return json.dumps({**schema, "x-guidance": {**JSON_OPTIONS, "lenient": not strict, **own}})
