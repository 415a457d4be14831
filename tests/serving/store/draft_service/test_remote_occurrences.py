"""Occurrences from a draft service: equal to those of the datastore, within limits, and without rare text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import suffolk
from suffolk.datastore import limits
from suffolk.datastore.context_query import OccurrenceQuery
from suffolk.datastore.documents import Document, Occurrence
from suffolk.datastore.errors import (
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unsupported,
)
from suffolk.datastore.merged import MergedDatastore
from suffolk.datastore.retriever import Retriever
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import OPERATOR, Role
from suffolk.serving.net.messages.choices import parse_choices
from suffolk.serving.net.proto import draft_pb2, draft_pb2_grpc
from suffolk.serving.store.draft_service.disclosure import MinCount
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.store.live_store.store import create_live_store
from tests.support import oracle
from tests.support.callers import acting_as
from tests.support.draft_server import connected, serving
from tests.support.http_requests import ask
from tests.support.stores import make_store, make_word_store, random_documents
from tests.support.waiting import HANG

VOCABULARY = 9
TEXTS = random_documents(40, 50, 8, VOCABULARY)
PATTERN = [1, 2]


def facts(places: Sequence[Occurrence]) -> list[tuple[Any, ...]]:
    return [
        (*(getattr(each, name) for name in ("datastore", "segment", "document", "offset", "source")),)
        + (dict(each.metadata), each.before.tolist(), each.tokens.tolist())
        for each in places
    ]


def documents(texts: Sequence[Sequence[int]], name: str) -> list[Document]:
    return [
        Document(f"{name}-{number}", {"license": "mit", "size": number}, np.array(text, np.uint32))
        for number, text in enumerate(texts)
    ]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Retriever]]:
    """``code``: files; ``chat``: files with deletions, and memory."""
    folder = tmp_path_factory.mktemp("stores")
    with ExitStack() as stack:
        code = stack.enter_context(make_store(folder / "files", [TEXTS[:20]], vocab_size=VOCABULARY))
        chat = stack.enter_context(create_live_store(folder / "live", vocab_size=VOCABULARY))
        chat.append_batch(documents(TEXTS[20:], "old"))
        chat.append([5, 1, 2, 6], id="secret")
        chat.flush()
        chat.delete(["secret", "old-3"])
        chat.append_batch(documents(TEXTS[:5], "new"), group="g")
        yield {"code": code, "chat": chat}


@pytest.fixture(scope="module")
def server(stores: dict[str, Retriever]) -> Iterator[DraftServer]:
    with serving(stores) as server:
        yield server


@pytest.mark.parametrize("name", ["code", "chat", "code,chat", "chat:3,code"])
@pytest.mark.parametrize("bounds", [(10, 16, 0), (3, 0, 4), (64, 256, 256), (0, 1, 1)])
def test_remote_occurrences_are_the_local_ones(
    name: str, bounds: tuple[int, int, int], stores: dict[str, Retriever], server: DraftServer
) -> None:
    names = [each.split(":")[0] for each in name.split(",")]
    local = MergedDatastore({each: stores[each] for each in names})
    with connected(server, name) as remote:
        found = facts(remote.occurrences(PATTERN, *bounds))
        assert found == facts(local.occurrences(PATTERN, *bounds))
        assert len(found) == min(bounds[0], local.lookup(PATTERN).count)
        assert not found or {each[0] for each in found} == set(names)
        assert "secret" not in str(found)
    limit, context, before = bounds
    body = {"tokens": PATTERN, "datastores": [{"name": each} for each in names]}
    status, _, reply = ask(
        server, "POST", "/v1/occurrences", body | {"limit": limit, "context": context, "before": before}
    )
    keys = ("datastore", "segment", "document", "offset", "id", "metadata", "before", "tokens")
    assert (status, [tuple(each[key] for key in keys) for each in reply["occurrences"]]) == (200, found)


@pytest.mark.parametrize("name", ["chat", "chat,code"])
def test_groups(name: str, stores: dict[str, Retriever], server: DraftServer) -> None:
    absent = next(text[:6] for text in TEXTS[20:] if not oracle.occurrences(TEXTS[:5], text[:6]))
    with connected(server, name) as remote:
        local = MergedDatastore({each: stores[each] for each in remote.names})
        for store in (remote, local):

            def sources(
                scope: str | None, group: str = "g", pattern: list[int] = PATTERN, store: Any = store
            ) -> set[str]:
                found = store.occurrences(pattern, 64, group=group, scope=scope)
                return {str(place.source).split("-")[0] for place in found}

            assert sources(None) == sources("group") == {"new"}
            assert sources("store") == sources(None, "unknown") >= {"new", "old"}
            assert sources("group", "unknown") == sources("group", pattern=absent) == set()
            assert sources(None, pattern=absent) == {"old"}


def test_groups_that_cannot_be_searched(server: DraftServer) -> None:
    with connected(server, "code") as remote, pytest.raises(Unsupported, match="has no groups"):
        remote.occurrences(PATTERN, group="g")
    with connected(server, "chat") as remote, pytest.raises(InvalidArgument, match="scope is 'group', and a context"):
        remote.occurrences(PATTERN, scope="group")


@pytest.mark.parametrize("least", [2, 3, 8])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_windows_hold_only_frequent_text(least: int, length: int, tmp_path: Path) -> None:
    """Enough documents hold every text that is shown, and no window could be longer to the right."""

    def count(text: Sequence[int]) -> int:
        return oracle.holders(TEXTS, text)

    with make_store(tmp_path / "a", [TEXTS[:9], TEXTS[9:]], vocab_size=VOCABULARY, order_depth=16) as store:
        hiding = MinCount(store, least)
        for pattern in (text[4 : 4 + length] for text in TEXTS[:25] if len(text) > 8):
            found = hiding.occurrences(pattern, 20, 5, 5)
            every = len(oracle.occurrences(TEXTS, pattern))
            assert len(found) == (min(20, every) if count(pattern) >= least else 0)
            whole = store.occurrences(pattern, 20, 5, 5) if found else []
            for place, full in zip(found, whole, strict=True):
                assert place.document == full.document
                before, tokens = place.before.tolist(), place.tokens.tolist()
                assert tokens[:length] == pattern
                assert count(before + tokens) >= least
                assert tokens == full.tokens[: len(tokens)].tolist()
                longer = full.tokens[: len(tokens) + 1].tolist()
                assert longer == tokens or count(longer) < least
                earlier = full.before[len(full.before) - len(before) - 1 :].tolist()
                assert len(before) == len(full.before) or count(earlier + tokens) < least


def test_a_server_hides_occurrences_of_rare_text(tmp_path: Path) -> None:
    texts = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 6], [7, 1, 2, 8]]
    with (
        make_store(tmp_path / "a", [texts], vocab_size=12) as store,
        serving({"a": store}, min_count=2) as server,
        connected(server) as remote,
    ):
        assert [each.tokens.tolist() for each in remote.occurrences([1, 2])] == [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2]]
        assert [each.before.tolist() for each in remote.occurrences([1, 2], before=2)] == [[], [], []]
        assert remote.occurrences([4, 5]) == remote.occurrences([7]) == []


def test_a_rare_pattern_in_a_group_is_that_of_the_store(tmp_path: Path) -> None:
    with create_live_store(tmp_path / "live", vocab_size=20) as live:
        live.append_batch([Document(None, {}, np.array([1, 2, 3], np.uint32))] * 2)
        live.append([1, 2, 3], group="rare", id="own")
        live.append_batch([Document("own", {}, np.array([1, 2, 9], np.uint32))] * 2, group="often")
        store = MinCount(live, 2)

        def found(group: str, scope: str | None = None) -> list[str | None]:
            return [each.source for each in store.occurrences([1, 2], group=group, scope=scope)]

        assert found("often") == found("often", "group") == ["own", "own"]
        assert sorted(map(str, found("rare"))) == sorted(map(str, found("unknown"))) == ["None"] * 2 + ["own"] * 3
        assert found("rare", "group") == []
        assert len(found("rare", "store")) == 5


def test_an_operator_can_refuse(stores: dict[str, Retriever]) -> None:
    with serving(stores, shows_occurrences=False) as server, connected(server, "code") as remote:
        assert remote.lookup(PATTERN).count > 0
        with pytest.raises(PermissionDenied, match="this server shows no occurrences; ask its operator for"):
            remote.occurrences(PATTERN)
        status, _, reply = ask(server, "POST", "/v1/occurrences", {"tokens": PATTERN, "datastore": "code"})
        assert (status, reply["error"]["code"]) == (403, "PERMISSION_DENIED")
        assert ask(server, "POST", "/v1/occurrences", {"tokens": [1], "datastore": "x"})[0] == 404


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"limit": 65}, "limit is 65; it must be between 0 and 64"),
        ({"context": 257}, "context is 257; it must be between 0 and 256"),
        ({"before": 257}, "before is 257; it must be between 0 and 256"),
        ({"pattern": b""}, "a pattern of 0 tokens; it must have 1 to 64"),
        ({"pattern": bytes(4 * 65)}, "a pattern of 65 tokens; it must have 1 to 64"),
        ({"pattern": b"abc"}, "pattern has 3 bytes; it must be a multiple of 4"),
        (
            {"pattern": np.array([9], "<i4").tobytes()},
            "token id 9 at index 0 is out of range; the vocabulary has 9 ids",
        ),
        ({"text": "x" * 16_385}, "text has 16385 characters; the limit is 16384; send only its end, or token ids"),
        ({"scope": "all"}, "scope is 'all'; it must be one of store, group, group_first"),
        ({"scope": "group"}, "scope is 'group', and a context has no group"),
    ],
)
def test_limits(request_: dict[str, Any], text: str, server: DraftServer) -> None:
    fields = {"datastores": [draft_pb2.DatastoreChoice(name="code")], "pattern": bytes(4)} | request_
    with grpc.insecure_channel(str(server.listening[0])) as channel, pytest.raises(grpc.RpcError) as caught:
        draft_pb2_grpc.DraftServiceStub(channel).Occurrences(draft_pb2.OccurrencesRequest(**fields), timeout=HANG)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in caught.value.details()


@pytest.mark.parametrize("name", ["code", "chat", "chat,code"])
def test_the_deadline_is_checked_between_places(name: str, server: DraftServer) -> None:
    """Regression: it was checked before the search alone, and 64 places with large metadata take more than a second."""
    search = partial(server.service.occurrences, parse_choices(name), OccurrenceQuery(PATTERN, 6))
    asked: list[bool] = []

    def passed_after(checks: int) -> bool:
        asked.append(len(asked) >= checks)
        return asked[-1]

    with acting_as(OPERATOR):
        found = search(lambda: passed_after(1000))
        read = sum(bool(place.segment) for place in found)  # from files
        assert read > 2
        assert len(asked) == 1 + read
        for checks in range(1 + read):
            asked.clear()
            with pytest.raises(DeadlineExceeded, match="the deadline passed before all occurrences were read"):
                search(partial(passed_after, checks))
            assert len(asked) == checks + 1


def test_a_text_is_encoded_by_the_server(tmp_path: Path, stores: dict[str, Retriever], server: DraftServer) -> None:
    make_word_store(tmp_path / "words")
    with (
        suffolk.open(tmp_path / "words") as store,
        serving({"words": store}) as words,
        grpc.insecure_channel(str(words.listening[0])) as channel,
    ):
        reply = draft_pb2_grpc.DraftServiceStub(channel).Occurrences(draft_pb2.OccurrencesRequest(text="the cat"))
        assert len(reply.occurrences) == 2
        body = {"text": "the cat", "limit": 1, "before": 2, "texts": True}
        [place] = ask(words, "POST", "/v1/occurrences", body)[2]["occurrences"]
        assert place["texts"] == {"before": "", "match": "the cat", "after": " sat on the mat"}
    with connected(server, "code") as remote, pytest.raises(NotFound, match="has no tokenizer; pass token ids"):
        remote.occurrences("the")


def test_a_call_counts_as_many_queries_as_occurrences(tmp_path: Path, stores: dict[str, Retriever]) -> None:
    access = tmp_path / "access.toml"
    access.write_text("[tenant.default]\nqueries_per_second = 1\n")
    token = tmp_path / "token"
    token.write_text(add_token(access, "reader", {"default": Role.READ}))
    with (
        serving(stores, access=access) as server,
        suffolk.open(f"grpc://{server.listening[0]}/code?token_file={token}") as remote,
    ):
        assert len(remote.occurrences([1], 8)) == 8
        with pytest.raises(ResourceExhausted, match=r"quota queries_per_second is 1, and .*; try again in [78]"):
            remote.occurrences(PATTERN, 1)


def test_limits_are_those_of_the_client(server: DraftServer) -> None:
    with connected(server, "code") as remote:
        for bounds in ({"limit": limits.MAX_OCCURRENCES + 1}, {"context": -1}, {"before": limits.MAX_WINDOW + 1}):
            with pytest.raises(InvalidArgument, match="it must be between 0 and"):
                remote.occurrences(PATTERN, **bounds)
