"""What callers of a worker get to see by their roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffolk.datastore.datastore import Datastore
from suffolk.datastore.errors import InvalidArgument, PermissionDenied
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext
from suffolk.serving.decoding.drafters.hybrid.drafter import load_hybrid
from suffolk.serving.decoding.drafters.retrieval.token_recycling import TokenRecyclingDrafter
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.stats import GenerationStats
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import Role
from suffolk.serving.worker.call import RemotePolicy
from suffolk.serving.worker.client import WorkerClient, connect_worker
from suffolk.serving.worker.server import WorkerServer
from tests.support.http_requests import ask
from tests.support.stores import make_store
from tests.support.worker_server import working

ROLES = {
    "reader": {"default": Role.READ},
    "admin": {"default": Role.ADMIN},
    "acme": {"acme": Role.ADMIN},
    "operator": {"*": Role.ADMIN},
}
SETTINGS = SamplingSettings(max_new_tokens=24, ignore_eos=True)
PROMPT = list(range(20)) * 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("access")
    for name, roles in ROLES.items():
        (folder / name).write_text(add_token(folder / "access.toml", name, roles))
    return folder


@pytest.fixture(scope="module")
def answer(target: Target) -> list[int]:
    """What the model writes after PROMPT."""
    with working(target) as server, connect_worker(f"grpc://{server.listening[0]}") as client:
        return tokens_of(client)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, answer: list[int]) -> Iterator[Datastore]:
    """A datastore from which whole answers are drafted."""
    with make_store(tmp_path_factory.mktemp("wiki") / "wiki", [[PROMPT + answer]], vocab_size=257) as store:
        yield store


@pytest.fixture(scope="module")
def server(target: Target, store: Datastore, folder: Path) -> Iterator[WorkerServer]:
    hybrid = load_hybrid(LoadContext(257, retrievers=[store], calibration=Calibration()), {})
    with working(target, {"hybrid": hybrid}, access=folder / "access.toml") as server:
        yield server


def client(server: WorkerServer, folder: Path, name: str) -> WorkerClient:
    return connect_worker(f"grpc://{server.listening[0]}?token_file={folder / name}")


def tokens_of(client: WorkerClient, **more: Any) -> list[int]:
    generation = client.generate(PROMPT, SETTINGS, **more)
    list(generation)
    return generation.tokens


@dataclass
class Shown:
    tokens: list[int]
    sources: set[int]
    stats: GenerationStats


def shown(client: WorkerClient, **more: Any) -> Shown:
    generation = client.generate(PROMPT, SETTINGS, **more)
    sources: set[int] = set()
    for step in generation:
        sources |= {*step.sources, *(source for _, source in step.pieces)}
    return Shown(generation.tokens, sources, generation.stats)


def test_sources_are_for_admins_of_the_datastores(server: WorkerServer, folder: Path, answer: list[int]) -> None:
    for name in ROLES:
        with client(server, folder, name) as opened:
            found = shown(opened)
            assert found.tokens == answer
            assert (found.sources == {0}) == (name == "reader")
            assert bool(found.stats.drafted.rows()) == (name != "reader")
        body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
        headers = {"Authorization": f"Bearer {(folder / name).read_text()}"}
        status, _, reply = ask(server, "POST", "/v1/completions", body, headers)
        assert (status, reply["metrics"] is not None) == (200, name != "reader")


def test_a_caller_drafts_from_its_own_datastores_alone(server: WorkerServer, folder: Path) -> None:
    for name, seen in (("reader", ["wiki"]), ("admin", ["wiki"]), ("acme", []), ("operator", ["wiki"])):
        with client(server, folder, name) as opened:
            info = opened.info()
            assert info["datastores"] == seen
            assert bool(info["stats"]) == (name == "operator")
            messages = []
            for wanted in ("wiki", "wikx"):
                try:
                    shown(opened, options=DraftOptions(datastores=(wanted,)))
                    messages.append("")
                except InvalidArgument as error:
                    messages.append(str(error).replace(wanted, "STORE", 1))
            assert bool(messages[0]) == (not seen)
            assert seen or messages[0] == messages[1]  # a hidden datastore answers like an unknown one
    with client(server, folder, "acme") as opened:
        assert not any("datastore" in row["source"] for row in json.loads(json.dumps(by_source(shown(opened).stats))))


def by_source(stats: GenerationStats) -> list[dict[str, Any]]:
    from suffolk.serving.decoding.drafters.registry import source_name

    return [row | {"source": source_name(row["source"])} for row in stats.drafted.rows()]


def test_calls_without_a_token_are_refused(server: WorkerServer) -> None:
    with connect_worker(f"grpc://{server.listening[0]}") as opened:
        with pytest.raises(PermissionDenied, match="no token was sent"):
            opened.info()
        with pytest.raises(PermissionDenied, match="no token was sent"):
            tokens_of(opened)


@pytest.mark.parametrize("shared", [False, True])
def test_nothing_is_learned_across_tenants(shared: bool, target: Target, folder: Path, store: Datastore) -> None:
    recycling, calibration = TokenRecyclingDrafter(), Calibration()
    hybrid = load_hybrid(LoadContext(257, retrievers=[store], calibration=calibration), {})
    loaded = {"token-recycling": recycling, "hybrid": hybrid}
    policy = RemotePolicy(share_learning=shared)
    with working(target, loaded, access=folder / "access.toml", policy=policy) as server:
        for name in ("reader", "acme", "operator"):
            with client(server, folder, name) as opened:
                for drafter in loaded:
                    tokens_of(opened, drafter=drafter)
        assert (recycling.stats()["ends"] > 0) == shared
    learned = {each.source for each in calibration.learned() if each.kind == "text" and np.any(each.reliability)}
    assert learned
    assert all(("tenant" in source) != shared for source in learned)
    if not shared:
        assert {source.rpartition(" ")[2] for source in learned} >= {"default", "acme", "*"}


def test_without_an_access_file_one_owner_learns(target: Target) -> None:
    recycling = TokenRecyclingDrafter()
    with working(target, {"token-recycling": recycling}) as server:
        with connect_worker(f"grpc://{server.listening[0]}") as opened:
            assert tokens_of(opened, drafter="token-recycling")
        assert recycling.stats()["ends"] > 0
