"""Several promotions run at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from suffolk.datastore.errors import Unavailable
from suffolk.serving.replication.promote import Promotion, has_leader, promote, read_replicas
from tests.support.draft_server import serving
from tests.support.replica_pair import make_replica
from tests.support.waiting import HANG

THREADS = 4
ROUNDS = 5


def test_promotions_at_once_choose_one_leader_an_epoch(tmp_path: Path) -> None:
    with (
        make_replica(tmp_path / "a" / "chat", copies=2) as first,
        make_replica(tmp_path / "b" / "chat", copies=2) as second,
        serving({"chat": first}) as a,
        serving({"chat": second}) as b,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        urls = [f"grpc://{each.listening[0]}/chat" for each in (a, b)]
        start = Barrier(THREADS)
        found = pool.map(lambda _: _promoted(urls, start), range(THREADS * ROUNDS))
        epochs = [done.epoch for done in found if done is not None]
        assert len(set(epochs)) == len(epochs) > 0
        assert has_leader(read_replicas(urls).values())


def _promoted(urls: Sequence[str], start: Barrier) -> Promotion | None:
    """The outcome; None if another promotion came first."""
    start.wait(HANG)
    try:
        return promote(urls)
    except Unavailable:
        return None
