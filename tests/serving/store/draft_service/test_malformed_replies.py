"""The client validates every reply. A malformed reply costs one draft."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from suffolk.datastore.errors import Internal, NotFound
from suffolk.datastore.retriever import Match
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.net.messages import columns
from suffolk.serving.net.proto import draft_pb2
from suffolk.serving.store.draft_service import grpc_server
from suffolk.serving.store.draft_service.service import DraftService
from tests.support.brute_force import BruteForceRetriever
from tests.support.draft_server import connected, drafted, serving

VOCABULARY = 40


@pytest.fixture
def remote() -> Iterator[RemoteDatastore]:
    with (
        serving({"wiki": BruteForceRetriever([[1, 2, 3]], VOCABULARY)}, http=None) as server,
        connected(server) as remote,
    ):
        yield remote


def numbers(*values: int) -> bytes:
    return np.array(values, "<u4").tobytes()


def reply_with(**fields: bytes) -> draft_pb2.DraftReply:
    honest = {
        "tokens": np.array([1, 2], "<i4").tobytes(),
        "parents": np.array([-1, 0], "<i4").tobytes(),
        "scores": np.array([1, 0.5], "<f4").tobytes(),
        "counts": np.array([2, 1], "<u8").tobytes(),
        "sizes": numbers(2),
        "match_lengths": numbers(3),
        "match_counts": np.array([2], "<u8").tobytes(),
    }
    return draft_pb2.DraftReply(**{**honest, **fields})


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (draft_pb2.DraftReply(), "matches: 0 lengths and 0 counts for 1 contexts"),
        (reply_with(sizes=b""), "sizes: 0 trees for 1 queries"),
        (
            reply_with(tokens=np.array([1, VOCABULARY], "<i4").tobytes()),
            f"node 1 has token id {VOCABULARY}; the vocabulary has 40",
        ),
        (
            reply_with(parents=np.array([-1, 1], "<i4").tobytes()),
            "node 1 has parent 1; a parent must be -1 or come before its child",
        ),
        (reply_with(parents=bytes(4)), "parents has 1 entries; sizes add up to 2"),
        (reply_with(sizes=numbers(1)), "tokens has 2 entries; sizes add up to 1"),
        (reply_with(tokens=bytes(3)), "tokens has 3 bytes; it must be a multiple of 4"),
        (reply_with(scores=np.array([np.nan, 0], "<f4").tobytes()), "a score is not in 0..1"),
        (reply_with(match_lengths=numbers(17)), "matches[0]: length 17 and count 2 are impossible; the limit of"),
        (
            reply_with(
                **dict.fromkeys(("tokens", "parents", "scores"), bytes(260)), counts=bytes(520), sizes=numbers(65)
            ),
            "trees[0] has 65 nodes; the query allows 64",
        ),
    ],
)
def test_a_malformed_draft_reply_raises_and_costs_one_draft(
    reply: draft_pb2.DraftReply, text: str, remote: RemoteDatastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "pack_trees", lambda *_: reply)
    with pytest.raises(Internal) as caught:
        remote.draft([1])
    assert str(caught.value).startswith(f"{remote.url}: the draft service sent a malformed reply: ")
    assert text in str(caught.value)
    drafter = DatastoreDrafter(remote, remote.vocab_size, prefetch=False)
    assert drafted(drafter, [1]) == 0
    assert drafter.failures.by_reason == {"Internal": 1}


@pytest.mark.parametrize(
    ("matches", "text"),
    [
        ([], "matches: 0 lengths and 0 counts for 1 contexts"),
        ([(17, 1)], "length 17 and count 1 are impossible"),
        ([(0, 1)], "length 0"),
    ],
)
def test_a_malformed_lookup_reply_raises(
    matches: list[tuple[int, int]], text: str, remote: RemoteDatastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    malformed = columns.pack_matches([Match(*match) for match in matches])
    monkeypatch.setattr(columns, "pack_matches", lambda *_: malformed)
    with pytest.raises(Internal, match=text):
        remote.lookup([1])


def test_malformed_server_info_raises(remote: RemoteDatastore, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("[1]", "{", "[" * 100_000):
        info = draft_pb2.GetInfoReply(datastores=[draft_pb2.DatastoreInfo(name="wiki", vocab_size=9, info_json=text)])
        monkeypatch.setattr(grpc_server, "_info_reply", lambda *_, info=info: info)
        with pytest.raises(Internal, match="the draft service sent server info that is not a JSON object"):
            remote.info()
    monkeypatch.setattr(grpc_server, "_info_reply", lambda *_: draft_pb2.GetInfoReply())
    with pytest.raises(NotFound, match="the server has no datastore"):
        remote.info()


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"datastore": "other"}, "occurrences[0] is in datastore 'other', which was not searched"),
        ({"tokens": numbers(1, 3)}, "occurrences[0].tokens does not begin with the pattern"),
        ({"tokens": b""}, "occurrences[0].tokens does not begin with the pattern"),
        (
            {"tokens": numbers(1, 2, VOCABULARY)},
            f"occurrences[0] has a token id outside the vocabulary of {VOCABULARY}",
        ),
        ({"before": numbers(0xFFFFFFFF)}, f"occurrences[0] has a token id outside the vocabulary of {VOCABULARY}"),
        ({"before": b"abc"}, "occurrences[0].before has 3 bytes; it must be a multiple of 4"),
        ({"metadata_json": "[1]"}, "occurrences[0].metadata_json is '[1]'; it must be a JSON object"),
        (None, "occurrences: 2; the query allows 1"),
    ],
)
def test_a_malformed_occurrence(
    changed: dict[str, Any] | None, text: str, remote: RemoteDatastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = {"datastore": "wiki", "tokens": numbers(1, 2, 3), "before": numbers(9), "metadata_json": '{"a": 1}'}
    one = draft_pb2.Occurrence(**honest)
    monkeypatch.setattr(DraftService, "occurrences", lambda *_: [])

    def answer_with(*places: draft_pb2.Occurrence) -> None:
        monkeypatch.setattr(grpc_server, "pack_occurrences", lambda *_: draft_pb2.OccurrencesReply(occurrences=places))

    answer_with(one)
    assert remote.occurrences([1, 2], 1)[0].metadata == {"a": 1}
    answer_with(*([one, one] if changed is None else [draft_pb2.Occurrence(**{**honest, **changed})]))
    with pytest.raises(Internal) as caught:
        remote.occurrences([1, 2], 1)
    assert text in str(caught.value)
    assert remote.healthy  # no decoding step waits for occurrences, so they do not count for the breaker
