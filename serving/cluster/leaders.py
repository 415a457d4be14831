"""Keeps a leader for each shard of each live store of a cluster, as ``suffolk promote --watch`` does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from suffolk.datastore.errors import PermissionDenied
from suffolk.serving.cluster.config import StoresConfig
from suffolk.serving.cluster.live_copies import copies_of
from suffolk.serving.replication.leader_watch import LOOK_SECONDS, LeaderWatch, have_leaders
from suffolk.serving.replication.promote import Promotion

LOG = logging.getLogger("suffolk.cluster")
_AWAY_SECONDS = 2.0
"""Seconds without a leader after which another copy is promoted."""


class Leaders:
    """Promotes in a thread whenever a leader is gone. Thread-safe.

    Attributes:
        refused: why the token may not promote; empty if it may.
    """

    def __init__(self, stores: Callable[[], StoresConfig]) -> None:
        """``stores``: returns the wanted stores."""
        self.refused = ""
        self._stores = stores
        self._watch = LeaderWatch(_AWAY_SECONDS)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leaders", daemon=True)
        self._thread.start()

    def complete(self) -> bool:
        """Whether each shard of each live store has a leader now."""
        return have_leaders(copies_of(self._stores()))

    def close(self) -> None:
        """Promote no more."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            try:
                self._look()
            except Exception:  # without this thread, no later leader would be replaced
                LOG.exception("the watch for leaders goes on after an error")

    def _look(self) -> None:
        for outcome in self._watch.look(copies_of(self._stores())):
            if isinstance(outcome, Promotion):
                LOG.info("%s leads in epoch %d", outcome.leader, outcome.epoch)
                self.refused = ""
            else:
                LOG.warning("no leader: %s", outcome)
                self.refused = str(outcome) if isinstance(outcome, PermissionDenied) else ""
