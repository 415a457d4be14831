"""The quota of one tenant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from suffolk.datastore.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that one tenant may use. Unset numbers are unlimited. Immutable.

    Attributes:
        calls_per_second: calls, of any method except health checks.
        queries_per_second: contexts of drafts and lookups; on a worker, texts.
        concurrent_calls: calls that run at the same time.
        stored_tokens: tokens of the tenant's live datastores together.
    """

    calls_per_second: float = math.inf
    queries_per_second: float = math.inf
    concurrent_calls: float = math.inf
    stored_tokens: float = math.inf

    @classmethod
    def read(cls, table: Mapping[str, Any], label: str) -> Quota:
        """A quota from a TOML table. Raises InvalidArgument; ``label`` names the table in its message."""
        names = [each.name for each in fields(cls)]
        for name, value in table.items():
            if name not in names:
                raise InvalidArgument(f"{label}: unknown key {name!r}; the keys are {', '.join(names)}")
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise InvalidArgument(f"{label}.{name} is {value!r}; it must be a number of 0 or more")
        return cls(**table)


UNLIMITED = Quota()
