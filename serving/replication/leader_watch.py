"""Promotes a copy of a live store when its leader is gone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.replication.promote import Promotion, has_leader, promote, read_replicas

LOOK_SECONDS = 0.5
"""Time between two looks."""


_AT_A_TIME = 16
"""Shards that are looked at at the same time, because a copy that is away takes up to a second."""


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
        self._seen = {urls: self._seen.get(urls, time.monotonic()) for urls in shards}
        with ThreadPoolExecutor(_AT_A_TIME, "suffolk-leaders") as pool:
            outcomes = pool.map(self._look_at, shards)
            return [each for each in outcomes if each is not None]

    def _look_at(self, urls: tuple[str, ...]) -> Promotion | SuffolkError | None:
        outcome: Promotion | SuffolkError | None = None
        if not has_leader(read_replicas(urls).values()):
            if time.monotonic() - self._seen[urls] <= self._seconds:
                return None
            try:
                outcome = promote(urls)
            except SuffolkError as error:
                outcome = error
        self._seen[urls] = time.monotonic()
        return outcome


def have_leaders(shards: Sequence[tuple[str, ...]]) -> bool:
    """Whether each shard has a leader now. Arguments and errors as ``LeaderWatch.look``."""
    with ThreadPoolExecutor(_AT_A_TIME, "suffolk-leaders") as pool:
        return all(pool.map(lambda urls: has_leader(read_replicas(urls).values()), shards))
