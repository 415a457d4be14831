"""Tests the core of all adapters. It drafts for a host's steps, from folders and services, and never raises."""

from __future__ import annotations

import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models

import suffolk
from suffolk.datastore.datastore import Datastore
from suffolk.datastore.errors import InvalidArgument, NotFound, Unsupported
from suffolk.datastore.settings import from_json
from suffolk.serving.integrations.core import DraftCore, FinishedText
from suffolk.serving.integrations.options import IntegrationOptions
from suffolk.serving.integrations.running_requests import Context
from suffolk.serving.store.live_store.store import create_live_store
from tests.support.draft_server import serving
from tests.support.simulated_host import CLOCK, SimulatedHost
from tests.support.stores import make_store

VOCAB = 500
RANDOM = np.random.default_rng(5)
TEXTS = [RANDOM.integers(0, VOCAB, 120).tolist() for _ in range(4)]
"""Texts without repetitions: prompt lookup knows nothing of them."""


@pytest.fixture
def store(tmp_path: Path) -> Datastore:
    return make_store(tmp_path / "store", [TEXTS], vocab_size=VOCAB)


def core_of(*datastores: object, **settings: Any) -> DraftCore:
    options = {"row_cost": 0.02, "datastores": tuple(str(each) for each in datastores)}
    given = {name: settings.pop(name) for name in list(settings) if name in IntegrationOptions.__slots__}
    settings = {"clock": CLOCK, **settings}
    return DraftCore(IntegrationOptions(**{**options, **given}), VOCAB, "the model", **settings)


@pytest.mark.parametrize("keyed", [True, False], ids=["ids", "no ids"])
def test_texts_on_file_take_few_passes(store: Datastore, tmp_path: Path, keyed: bool) -> None:
    core = core_of(tmp_path / "store")
    host = SimulatedHost(TEXTS, 20, keyed)
    assert host.run(core) < 40
    assert host.accepted > 0.8 * host.drafted
    stats = core.stats()
    assert stats["draft_tokens"] == host.drafted
    assert stats["failed"] == 0
    core.close()


def test_chains_are_as_long_as_the_host_takes(store: Datastore, tmp_path: Path) -> None:
    core = core_of(tmp_path / "store")
    host = SimulatedHost(TEXTS, 20)
    longest = 0
    while host.running:
        longest = max([longest, *map(len, host.step(core, 3))])
    assert longest == 3


def test_the_own_text_is_a_source(tmp_path: Path) -> None:
    core = core_of(datastores=())
    text = TEXTS[0][:40] * 4
    host = SimulatedHost([text], 60)
    assert host.run(core) < 50


def test_wrong_drafts_are_given_up(tmp_path: Path) -> None:
    """The store continues each pair of tokens wrongly. So the core stops drafting, and stays within its budget."""
    wrong = [[each, (each + 1) % VOCAB, (each + 7) % VOCAB] for each in range(VOCAB)] * 2
    make_store(tmp_path / "wrong", [wrong], vocab_size=VOCAB)
    core = core_of(tmp_path / "wrong")
    text = np.arange(400) * 3 % VOCAB
    host = SimulatedHost([text.tolist()], 20)
    host.run(core)
    assert host.accepted == 0
    assert host.passes == 379
    assert host.drafted * 0.02 < 1 + 0.01 * host.passes + 0.5


def test_rows_may_move_and_texts_may_be_equal(store: Datastore, tmp_path: Path) -> None:
    """The host gives no ids. The order of contexts changes, and two requests share a prompt."""
    core = core_of(tmp_path / "store")
    host = SimulatedHost([*TEXTS[:2], TEXTS[0]], 20, keyed=False)
    sizes = []
    while host.running:
        running = host.running[::-1]
        chains = core.draft_chains(host.contexts()[::-1], 4)
        for place, chain in zip(running, chains, strict=True):
            host._verify(place, chain)
        sizes.append(len(running))
    assert host.accepted > 0.8 * host.drafted > 0
    assert len(sizes) < 60


def test_tails_are_enough_where_requests_have_ids(store: Datastore, tmp_path: Path) -> None:
    core = core_of(tmp_path / "store")
    host = SimulatedHost(TEXTS, 20, tail=18)
    assert host.run(core) < 40
    [request] = [Context(np.array(TEXTS[0][40:50], np.int32), "late", 50)]
    core.draft_chains([request], 4)
    [chain] = core.draft_chains([Context(np.array(TEXTS[0][90:100], np.int32), "late", 100)], 4)  # a gap: begun anew
    assert chain == TEXTS[0][100:104]


@pytest.mark.parametrize("width", [1, 4, 12])
def test_trees_have_one_width(store: Datastore, tmp_path: Path, width: int) -> None:
    core = core_of(tmp_path / "store")
    host = SimulatedHost(TEXTS, 20)
    tokens, masks = core.draft_trees(host.contexts(), width)
    assert (tokens.shape, tokens.dtype) == ((4, width), np.int32)
    assert (masks.shape, masks.dtype) == ((4, width, width), np.bool_)
    for text, row, mask in zip(TEXTS, tokens, masks, strict=True):
        deepest = int(mask.sum(1).argmax())
        assert row[mask[deepest]].tolist() == text[20 : 20 + mask[deepest].sum()]
    assert core.draft_trees([], width)[1].shape == (0, width, width)


def test_a_step_is_one_call(store: Datastore) -> None:
    with serving({"store": store}) as server:
        core = core_of(f"grpc://{server.listening[0]}/store", deadline_ms=5000)
        host = SimulatedHost(TEXTS, 20)
        host.step(core)
        assert core.stats()["datastore: calls"] == 1
        host.run(core)
        stats = core.stats()
        assert stats["datastore: calls"] <= stats["steps"]
        assert host.accepted > 0
        core.close()


def test_a_service_may_die_and_come_back(store: Datastore) -> None:
    with serving({"store": store}) as server:
        endpoint = server.listening[0]
        core = core_of(f"grpc://{endpoint}/store", deadline_ms=5000)
        host = SimulatedHost([text * 3 for text in TEXTS], 20)
        assert any(host.step(core) for _ in range(3))
    for _ in range(8):
        host.step(core)
    failed = core.stats()["failed"]
    assert failed > 0
    before = host.accepted
    core._stores[0].breaker._next_retry = 0.0  # type: ignore[attr-defined]
    with serving({"store": store}, listen=(endpoint,)):
        while host.running:
            host.step(core)
            core._stores[0].breaker._next_retry = 0.0  # type: ignore[attr-defined]
        assert host.accepted > before
    core.close()


def test_finished_texts_are_handed_over(store: Datastore, tmp_path: Path) -> None:
    finished: list[FinishedText] = []
    core = core_of(tmp_path / "store", on_finish=finished.append)
    host = SimulatedHost(TEXTS, 20)
    host.run(core)
    assert sorted(each.key for each in finished) == [0, 1, 2, 3]  # type: ignore[type-var]
    for each in finished:
        assert isinstance(each.key, int)
        known = each.tokens.tolist()
        assert known == TEXTS[each.key][: len(known)]
        assert each.prompt_tokens == 20
    core.finish("never begun")


def test_requests_without_ids_end_when_they_are_not_seen_any_more() -> None:
    finished: list[FinishedText] = []
    core = core_of(on_finish=finished.append)
    core.draft_chains([Context(np.array([1, 2, 3], np.int32))], 4)
    other = np.array([7] * 100, np.int32)
    for size in range(1, 70):
        core.draft_chains([Context(other[:size])], 4)
    assert [each.tokens.tolist() for each in finished] == [[1, 2, 3]]


def test_errors_cost_drafts_and_nothing_else(store: Datastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    core = core_of(tmp_path / "store", clock=lambda: now)
    host = SimulatedHost(TEXTS, 20)

    def fail(requests: object) -> None:
        raise MemoryError("no memory for drafts")

    host.step(core)
    with monkeypatch.context() as patch:
        patch.setattr(core.drafter, "propose", fail)
        for _ in range(10):
            assert host.step(core) == [[]] * 4
            core.draft_trees(host.contexts(), 4)
    assert core.stats()["failed MemoryError"] == 3  # then the breaker is open
    assert host.step(core) == [[]] * 4
    now = 2.0
    host.step(core)
    assert any(host.step(core))


def test_an_error_while_requests_are_released_stays_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    core = core_of()
    host = SimulatedHost(TEXTS, 20)
    host.step(core)

    def fail(*arguments: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(core.drafter, "propose", fail)
    monkeypatch.setattr(core.drafter, "release", fail)
    assert host.step(core) == [[]] * 4
    assert core.stats()["failed RuntimeError"] > 1


def test_an_error_of_on_finish_is_counted(store: Datastore, tmp_path: Path) -> None:
    def refuse(text: FinishedText) -> None:
        raise OSError("no space")

    core = core_of(tmp_path / "store", on_finish=refuse)
    SimulatedHost(TEXTS, 20).run(core)
    stats = core.stats()
    assert stats["failed OSError"] == 4


def test_foreign_ids_get_no_drafts(store: Datastore, tmp_path: Path) -> None:
    core = core_of(tmp_path / "store")
    texts = [np.array([*TEXTS[0][:20], token, *TEXTS[1][:10]], np.int32) for token in (VOCAB, -1, 3)]
    chains = core.draft_chains([Context(each, number) for number, each in enumerate(texts)], 4)
    assert chains == [[], [], TEXTS[1][10 : 10 + len(chains[2])]]
    assert chains[2]
    assert core.stats()["failed"] == 0


def test_options_are_checked() -> None:
    assert from_json(IntegrationOptions, {"datastores": ["a", "grpc://b"]}, "here").datastores == ("a", "grpc://b")
    for wrong, message in [
        ({"datastore": ["a"]}, "here: unknown key 'datastore'"),
        ({"datastores": "a"}, "datastores is 'a'"),
        ({"row_cost": 2}, "row_cost is 2"),
        ({"deadline_ms": 0}, "deadline_ms is 0"),
        ({"prompt_lookup": False}, "datastores is empty"),
        ("a", "here is of type str"),
    ]:
        with pytest.raises(InvalidArgument, match=message):
            from_json(IntegrationOptions, wrong, "here")


def test_a_datastore_of_another_model_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    make_store(tmp_path / "other", [[[1, 2]]], vocab_size=VOCAB, tokenizer="f" * 64)
    make_store(tmp_path / "larger", [[[1, 2]]], vocab_size=VOCAB + 1)
    with pytest.raises(Unsupported, match="was built with tokenizer ffffffffffff, model the model has"):
        core_of(tmp_path / "other", tokenizer=tmp_path / "tokenizer.json")
    with pytest.raises(Unsupported, match="was built for 501 token ids, model the model has 500"):
        core_of(tmp_path / "larger")
    with pytest.raises(NotFound):
        core_of(tmp_path / "missing")


def test_the_core_needs_no_torch() -> None:
    code = "import sys, suffolk.serving.integrations.core; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_texts_are_remembered_and_searched(tmp_path: Path) -> None:
    """The first texts are drafted from nothing; the same texts again are drafted from the first ones."""
    create_live_store(tmp_path / "live", vocab_size=VOCAB).close()
    passes = []
    for _ in range(2):
        core = core_of(remember=str(tmp_path / "live"), prompt_lookup=False)
        host = SimulatedHost(TEXTS, 20)
        passes.append(host.run(core))
        for key in range(len(TEXTS)):
            core.finish(key)
        core.close()
        assert core.stats()["remember_appended"] == len(TEXTS)
        assert core.stats()["failed"] == 0
    assert passes[1] < passes[0] / 2


def test_local_datastores_are_searched_while_services_do_not_pay(store: Datastore, tmp_path: Path) -> None:
    """The texts begin with tokens that no datastore has, so that calls to the service stop before the known part."""
    calls = count()
    make_store(
        tmp_path / "other", [[np.random.default_rng(6).integers(0, VOCAB, 500).tolist()]], vocab_size=VOCAB
    ).close()
    with suffolk.open(tmp_path / "other") as other, serving({"other": other}) as server:
        url = f"grpc://{server.listening[0]}/other?deadline_ms=60000"
        core = core_of(tmp_path / "store", url, clock=lambda: CLOCK() + 0.005 * next(calls))
        host = SimulatedHost([[*np.random.default_rng(7).integers(0, VOCAB, 80).tolist(), *TEXTS[0]]], 20)
        assert host.run(core) < 100
        stats = core.stats()
        core.close()
    assert stats["failed"] == 0


def test_texts_are_remembered_behind_a_url(tmp_path: Path) -> None:
    with (
        create_live_store(tmp_path / "live", vocab_size=VOCAB) as live,
        serving({"live": live}) as server,
    ):
        core = core_of(remember=f"grpc://{server.listening[0]}/live?deadline_ms=60000", prompt_lookup=False)
        host = SimulatedHost(TEXTS, 20)
        host.run(core)
        for key in range(len(TEXTS)):
            core.finish(key)
        core.close()
        found = [document.tokens.tolist() for document in live.documents()]
        assert found == [text[20 : 20 + len(tokens)] for text, tokens in zip(TEXTS, found, strict=True)]
        assert min(map(len, found)) > 80
