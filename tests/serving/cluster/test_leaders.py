"""A cluster's watch over the leaders of its live stores, with real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.serving.cluster import leaders
from suffolk.serving.cluster.config import StoresConfig
from suffolk.serving.cluster.leaders import Leaders
from suffolk.serving.cluster.live_config import LiveConfig
from suffolk.serving.draft_service.client import connect
from tests.support.replicas import NAME, Replicas
from tests.support.waiting import HANG, until


def test_a_copy_leads_after_the_leader_has_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "_AWAY_SECONDS", 0.1)
    with Replicas(tmp_path, 2) as replicas:
        replicas.start(0, 1)
        addresses = {f"node-{number}": f"127.0.0.1:{port}" for number, port in enumerate(replicas.ports)}
        stores = StoresConfig(live={NAME: LiveConfig("/tokenizer")}, port=7700, copies_at=addresses)
        watch = Leaders(lambda: stores)
        try:
            until(watch.complete)
            replicas.await_step()
            leader = next(number for number in (0, 1) if "lag_seconds" not in state(replicas, number))
            connect(replicas.url(leader), HANG).append([1, 2, 3])
            replicas.kill(leader)
            until(watch.complete)
            assert state(replicas, 1 - leader)["leads"]
            assert connect(replicas.url(1 - leader), HANG).lookup([1, 2, 3]).count == 1
        finally:
            watch.close()


def state(replicas: Replicas, number: int) -> dict[str, object]:
    found: dict[str, object] = connect(replicas.url(number), HANG).info()["replica"]
    return found
