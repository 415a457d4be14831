"""Promotes a copy of a live store when its leader is gone."""

from __future__ import annotations

import time
from collections.abc import Sequence

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.replication.promote import Promotion, has_leader, promote, read_replicas

LOOK_SECONDS = 0.5
"""Time between two looks."""


class LeaderWatch:
    """Promotes when no leader has answered for ``seconds``. Not thread-safe; several watches may run at a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: dict[tuple[str, ...], float] = {}  # when the copies with these URLs last had a leader

    def look(self, shards: Sequence[tuple[str, ...]]) -> list[Promotion | SuffolkError]:
        """Look for the leader of each shard once. Returns the promotions, and the errors of those that failed.

        Args:
            shards: the URLs of all copies of each, also of those that do not answer.

        Raises:
            InvalidArgument: a URL is malformed, or named twice.
        """
        outcomes: list[Promotion | SuffolkError] = []
        self._seen = {urls: self._seen.get(urls, time.monotonic()) for urls in shards}
        for urls in shards:
            if not has_leader(read_replicas(urls).values()):
                if time.monotonic() - self._seen[urls] <= self._seconds:
                    continue
                try:
                    outcomes.append(promote(urls))
                except SuffolkError as error:
                    outcomes.append(error)
            self._seen[urls] = time.monotonic()
        return outcomes
