"""A worker appends finished answers to a live datastore, in the group of their request, unless the request refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from suffolk.serving.clients.text_appender import TextAppender
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.store.live_store.store import LiveStore, create_live_store
from tests.support.http_requests import ask
from tests.support.waiting import until
from tests.support.worker_server import calling, page, working

SETTINGS = SamplingSettings(max_new_tokens=12, ignore_eos=True)


@pytest.fixture
def store(tmp_path: Path, target: Target) -> Iterator[LiveStore]:
    with create_live_store(tmp_path / "chat", vocab_size=target.vocab_size) as store:
        yield store


def test_finished_texts_are_remembered(target: Target, store: LiveStore) -> None:
    with (
        TextAppender(store) as appender,
        working(target, appender=appender) as server,
        calling(server) as client,
    ):
        texts = []
        for options in (DraftOptions(group="g"), DraftOptions(), DraftOptions(remember=False)):
            generation = client.generate([5, 6, 7], SETTINGS, options=options)
            for _ in generation:
                pass
            texts.append(generation.tokens)
        cancelled = client.generate([5, 6, 7], SamplingSettings(max_new_tokens=2000, ignore_eos=True))
        next(iter(cancelled))
        cancelled.cancel()
        until(lambda: appender.stats()["appended"] == 2)
        body = {"model": "tiny", "prompt": [9, 8], "max_tokens": 4, "temperature": 0}
        assert ask(server, "POST", "/v1/completions", body | {"suffolk": {"group": "h"}})[0] == 200
        assert ask(server, "POST", "/v1/completions", body | {"suffolk": {"remember": False}})[0] == 200
        until(lambda: appender.stats()["appended"] == 3)
        assert 'suffolk_remembered_texts_total{outcome="appended"} 3.0' in page(server, "/metrics")[1]
    found = [document.tokens.tolist() for document in store.documents()]
    assert found[:2] == texts[:2]
    assert [len(tokens) for tokens in found[2:]] == [4]
    assert store.group_stats("g").documents == store.group_stats("h").documents == 1
