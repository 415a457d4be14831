"""A caller must not get text of the worker's datastore out of it, except for what the model itself would write."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from suffolk.datastore.datastore import Datastore
from suffolk.datastore.errors import InvalidArgument, PermissionDenied
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.worker.call import RemotePolicy
from tests.support.stores import make_store
from tests.support.worker_server import calling, working

SECRET = np.random.default_rng(7).integers(0, 256, 60).tolist()
KNOWN = 6
"""Tokens at the beginning of the secret that the attacker knows."""
TINY = {"verification": "typical", "epsilon": 1e-300, "delta": 1e-300}
ATTACKS = (
    {"temperature": 1.0, **TINY},
    {"temperature": 100.0, **TINY},
    {"temperature": 100.0, "verification": "typical"},  # a flat distribution makes the default thresholds tiny too
    {"temperature": 1.0, "top_k": 2, "verification": "typical", "epsilon": 1e-300},
    {"temperature": 1.0, **TINY, "logit_bias": dict.fromkeys(range(0, 250, 2), 100.0)},
    {"temperature": 1.0, **TINY, "repetition_penalty": 100.0},
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Datastore]:
    with make_store(tmp_path_factory.mktemp("private") / "private", [[SECRET]], vocab_size=257) as store:
        yield store


def drafters(store: Datastore) -> dict[str, DatastoreDrafter]:
    return {"datastore": DatastoreDrafter(store, 257)}


def copied(tokens: list[int]) -> int:
    """The longest run of an answer that is in the secret."""
    runs = [(begin, end) for begin in range(len(tokens)) for end in range(begin + 1, len(tokens) + 1)]
    hidden = str(SECRET)[:-1] + ","
    return max(end - begin for begin, end in [(0, 0), *runs] if f" {str(tokens[begin:end])[1:-1]}," in hidden)


def settings(attack: dict[str, object]) -> SamplingSettings:
    return SamplingSettings(max_new_tokens=48, ignore_eos=True, **attack)  # type: ignore[arg-type]


def test_typical_with_tiny_thresholds_copies_the_datastore(target: Target, store: Datastore) -> None:
    """The attack, on an engine in the attacker's process. Steps take no time, so all nodes are verified."""
    with Engine(target, drafters(store), CostModel([1, 64], [1.0, 1.0])) as engine:
        for attack in ATTACKS[:3]:
            generation = engine.generate(SECRET[:KNOWN], settings(attack), "datastore")
            list(generation)
            assert copied(generation.tokens) >= 6


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_worker_refuses_typical(attack: dict[str, object], target: Target, store: Datastore) -> None:
    with working(target, drafters(store)) as server, calling(server) as client:
        with pytest.raises(PermissionDenied, match="verification is 'typical', which this worker refuses"):
            list(client.generate(SECRET[:KNOWN], settings(attack)))
        lossless = settings({name: value for name, value in attack.items() if name not in TINY})
        with_drafts = client.generate(SECRET[:KNOWN], lossless)
        plain = client.generate(SECRET[:KNOWN], lossless, drafter="none")
        assert [token for step in with_drafts for token in step.tokens] == [
            token for step in plain for token in step.tokens
        ]


def test_a_floor_keeps_the_datastore_from_answers(target: Target, store: Datastore) -> None:
    """Below the floor no drafted token is accepted, whatever the caller's settings make of the distribution."""
    with working(target, drafters(store), policy=RemotePolicy(typical_floor=0.2)) as server, calling(server) as client:
        for attack in ATTACKS:
            generation = client.generate(SECRET[:KNOWN], settings(attack))
            list(generation)
            assert copied(generation.tokens) <= 2  # by chance
            assert generation.stats.accepted == 0


def test_a_floor_of_one_half_passes_only_the_likeliest_token(target: Target) -> None:
    prompt = SECRET[:KNOWN]
    for floor in (-0.1, 1.5):
        with pytest.raises(InvalidArgument, match="typical_floor is .*; it must be between 0"):
            RemotePolicy(typical_floor=floor)
    policy = RemotePolicy(typical_floor=0.5)
    assert policy.apply(settings(ATTACKS[0])).typical_floor == 0.5
    assert policy.apply(settings({})) == settings({})
    assert len(prompt) == KNOWN
