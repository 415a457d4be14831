"""Tests draft options over gRPC: the same text as without them, counts of the prediction, and bad values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext
from suffolk.serving.decoding.drafters.hybrid.drafter import load_hybrid
from suffolk.serving.decoding.engine.loop.draft_options import MAX_PREDICTION, DraftOptions
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.read import read_recordings
from suffolk.serving.decoding.replay.recorder import Recorder
from suffolk.serving.net.proto import decode_pb2, decode_pb2_grpc
from suffolk.serving.worker.client import WorkerClient
from suffolk.serving.worker.limits import MAX_DATASTORES
from suffolk.serving.worker.server import WorkerServer
from suffolk.serving.worker.wire import pack_options, unpack_options
from tests.support.brute_force import BruteForceRetriever
from tests.support.waiting import HANG
from tests.support.worker_server import calling, working

PROMPT = [("user", "abc, abcabc: ")]
SETTINGS = SamplingSettings(max_new_tokens=60, ignore_eos=True)
SAMPLED = SamplingSettings(max_new_tokens=60, temperature=0.8, seed=3, ignore_eos=True)
REQUEST, OPTIONS, NAMES = decode_pb2.GenerateRequest, decode_pb2.DraftOptions, decode_pb2.DatastoreNames


@pytest.fixture(scope="module")
def server(target: Target) -> Iterator[WorkerServer]:
    """A worker with a datastore. The worker of the other tests has none."""
    store = BruteForceRetriever([[1, 2, 3]], target.vocab_size)
    with working(target, {"hybrid": load_hybrid(LoadContext(target.vocab_size, retrievers=[store]), {})}) as server:
        yield server


def generated(
    client: WorkerClient, settings: SamplingSettings, options: DraftOptions | None, drafter: str = ""
) -> list[int]:
    generation = client.generate(PROMPT, settings, drafter, options=options)
    for _ in generation:
        pass
    return generation.tokens


@pytest.mark.parametrize("settings", [SETTINGS, SAMPLED])
def test_a_prediction_never_changes_the_text(client: WorkerClient, settings: SamplingSettings) -> None:
    expected = generated(client, settings, None, "none")
    huge = [*expected, *([5, 6] * (MAX_PREDICTION // 2 - len(expected)))]
    for prediction in (expected, expected[7:], expected[::-1], [expected[0]] * 300, huge, "abc" * 50, "", []):
        for drafter in ("hybrid", "none"):
            assert generated(client, settings, DraftOptions(prediction), drafter) == expected


def test_a_client_gets_the_counts_of_the_worker(client: WorkerClient) -> None:
    tokens = generated(client, SETTINGS, None)
    generation = client.generate(PROMPT, SETTINGS, "hybrid", options=DraftOptions([*tokens, 256]))
    list(generation)
    stats = generation.stats
    assert stats.rejected_prediction_tokens == 1
    drafted = sum(count for (source, _), count in stats.drafted.accepted.items() if source & 256)
    assert stats.accepted_prediction_tokens == stats.to_dict()["accepted_prediction_tokens"] == drafted


def test_datastores_are_listed_and_chosen_by_name(client: WorkerClient, target: Target) -> None:
    (name,) = client.info()["datastores"]
    expected = generated(client, SETTINGS, None)
    for names in ((name,), ()):
        assert generated(client, SETTINGS, DraftOptions(datastores=names)) == expected
    with pytest.raises(InvalidArgument, match=f"datastore 'news' is not loaded; loaded: {name}"):
        generated(client, SETTINGS, DraftOptions(datastores=(name, "news")))


def test_what_is_not_to_be_remembered_is_not_recorded(target: Target, tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    with (
        Recorder(path, target.vocab_size) as recorder,
        working(target, recorder=recorder) as server,
        calling(server) as client,
    ):
        for length, remember in ((5, True), (6, False), (7, True)):
            generated(client, SamplingSettings(max_new_tokens=length, ignore_eos=True), DraftOptions(remember=remember))
    assert [len(each.generated) for each in read_recordings([path])] == [5, 7]


@pytest.mark.parametrize(
    "options",
    [
        DraftOptions(),
        DraftOptions("a text", ("wiki", "code"), remember=False),
        DraftOptions((5, 6)),
        DraftOptions("", ()),
    ],
)
def test_options_round_trip(options: DraftOptions) -> None:
    assert unpack_options(OPTIONS.FromString(pack_options(options).SerializeToString())) == options


NEWER = b"\x9a\x06\x01x"  # field 99
INVALID, UNIMPLEMENTED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (
            OPTIONS(prediction_text="x" * (MAX_PREDICTION + 1)),
            INVALID,
            f"has {MAX_PREDICTION + 1} characters; the limit",
        ),
        (OPTIONS(prediction_token_ids=bytes(4 * MAX_PREDICTION + 4)), INVALID, "token ids; the limit is"),
        (
            OPTIONS(prediction_token_ids=b"abc"),
            INVALID,
            "options.prediction_token_ids has 3 bytes; it must be a multiple",
        ),
        (
            OPTIONS(prediction_token_ids=b"\xff\xff\xff\xff"),
            INVALID,
            "the prediction has ids -1..-1; model tiny has 257",
        ),
        (OPTIONS(datastores=NAMES(names=["news"])), INVALID, "datastore 'news' is not loaded; loaded: "),
        (
            OPTIONS(datastores=NAMES(names=["x"] * (MAX_DATASTORES + 1))),
            INVALID,
            "options.datastores: the number of names is 1025; it must be between 0 and 1024",
        ),
        (OPTIONS.FromString(NEWER), UNIMPLEMENTED, "options: field number 99 is unknown to this worker"),
        (
            OPTIONS(datastores=NAMES.FromString(NEWER)),
            UNIMPLEMENTED,
            "options.datastores: field number 99 is unknown to this worker",
        ),
    ],
)
def test_bad_options_are_refused(server: WorkerServer, options: OPTIONS, code: grpc.StatusCode, text: str) -> None:
    with grpc.insecure_channel(str(server.listening[0])) as channel, pytest.raises(grpc.RpcError) as caught:
        list(decode_pb2_grpc.DecodeServiceStub(channel).Generate(REQUEST(text="x", options=options), timeout=HANG))
    assert (caught.value.code(), text in caught.value.details()) == (code, True), caught.value.details()
