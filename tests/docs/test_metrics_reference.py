"""The reference of metrics names what the servers report, with its type."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

from suffolk.serving.clients.text_appender import TextAppender
from suffolk.serving.store.live_store.store import create_live_store
from tests.support.draft_server import serving
from tests.support.replica_pair import make_replica
from tests.support.stores import make_store
from tests.support.worker_server import talking_target, working

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"


def reported(address: str) -> set[tuple[str, str]]:
    """Name and type of each metric of a server, without those of the process and the creation times."""
    with urllib.request.urlopen(f"http://{address}/metrics") as reply:
        found = re.findall(r"^# TYPE ((?:suffolk_|vllm:)\S+) (\S+)$", reply.read().decode(), re.MULTILINE)
    return {(name, kind) for name, kind in found if not name.endswith("_created")}


def test_the_page_names_every_metric(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", [[[1, 2, 3]]], vocab_size=257) as store, serving({"store": store}) as server:
        expected = reported(str(server.http))
    with (
        create_live_store(tmp_path / "chat", vocab_size=257) as chat,
        TextAppender(chat) as appender,
        working(talking_target(), appender=appender) as worker,
    ):
        expected |= reported(str(worker.http))
    with make_replica(tmp_path / "copy") as copy, serving({"copy": copy}) as server:
        expected |= reported(str(server.http))
    documented = re.findall(r"^\| `((?:suffolk_|vllm:)\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert set(documented) == expected
    assert len(documented) == len(expected)
