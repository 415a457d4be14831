"""Tests ``suffolk bench worker`` on a tiny model. Every transport gives the engine's texts, and the report counts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suffolk.benchmarks.worker.requests import TRANSPORTS, WorkerRequests, asking
from suffolk.datastore.errors import Internal
from suffolk.serving.worker.server import WorkerServer
from tests.support.building import make_texts
from tests.support.forked import suffolk
from tests.support.measurements import bench, read_report, result_files
from tests.support.worker_server import talking_target, working

pytest.importorskip("matplotlib")


def test_every_transport_gives_the_texts_of_the_engine(folder: Path, model: Path, tmp_path: Path) -> None:
    text = make_texts(1)[0]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"prompt": text[at : at + 60]}) + "\n" for at in (0, 40, 80)))
    path = tmp_path / "worker.json"
    options = ["--max-new-tokens", "12", "--ignore-eos", "--streams", "1", "3", "--drafters", "none,datastore"]
    command = ["worker", "--model", model, "--datastore", folder / "store", "--prompts", tmp_path / "p.jsonl", *options]
    assert "first token ms" in bench(*command, "--temperature", "0.7", *result_files(path))
    results = read_report(path)["results"]
    assert list(results["streams"]) == ["1", "3"]
    for size, drafters in results["streams"].items():
        assert list(drafters) == ["none", "datastore"]
        for transports in drafters.values():
            assert tuple(transports) == TRANSPORTS
            for name, each in transports.items():
                assert each["identical"] == each["requests"] == {"1": 3, "3": 6}[size]
                assert each["tokens_per_second"] > 0
                assert (each["first_token_ms"] is None) == (name == "HTTP, whole")
            assert transports["engine"]["ratio"] == 1.0


def test_a_count_below_one_is_refused(model: Path, tmp_path: Path) -> None:
    done = suffolk("bench", "worker", "--model", model, "--prompts", tmp_path, "--streams", "0")
    assert done.returncode == 2
    assert "--streams is 0; it must be 1 or more" in done.stderr


@pytest.mark.parametrize("transport", TRANSPORTS[1:])
def test_an_error_of_the_worker_ends_the_measurement(transport: str) -> None:
    with working(talking_target()) as server:
        requests = _unknown_drafter(server, transport)
        with pytest.raises(Exception, match="no-such-drafter") as raised:
            asking(requests)(requests.prompts[0])
        assert transport == "gRPC" or isinstance(raised.value, Internal)


def _unknown_drafter(server: WorkerServer, transport: str) -> WorkerRequests:
    address = server.listening[0] if transport == "gRPC" else server.http
    return WorkerRequests(transport, str(address), [[1]], 1, "no-such-drafter", 8, {"max_new_tokens": 4})
