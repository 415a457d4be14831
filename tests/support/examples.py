"""How many examples a property test tries. EXAMPLES=10 in the environment tries ten times as many ('make properties')."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

FACTOR = float(os.environ.get("EXAMPLES", "1"))


def examples(count: int, **options: Any) -> settings:
    """``count`` examples, or that many times ``FACTOR``."""
    return settings(max_examples=max(1, round(FACTOR * count)), **options)
