"""A datastore that is split over servers answers as one server with all of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from suffolk.serving.clients.fanout.datastore import FanoutDatastore
from tests.property.test_retrieval import Documents, corpora, paths, queries
from tests.support import oracle
from tests.support.brute_force import BruteForceRetriever
from tests.support.draft_server import serving
from tests.support.examples import examples
from tests.support.fanout import opened
from tests.support.waiting import HANG

VOCABULARY = 5
SHARDS = 3
Service = tuple[list[BruteForceRetriever], FanoutDatastore]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """Three servers, whose documents may be replaced, and a client of them as shards."""
    stores = [BruteForceRetriever([[1]], VOCABULARY) for _ in range(SHARDS)]
    with ExitStack() as stack:
        servers = [stack.enter_context(serving({"code": each}, http=None)) for each in stores]
        address = "+".join(str(each.listening[0]) for each in servers)
        yield stores, stack.enter_context(opened(f"grpc://{address}/code", HANG))


@examples(80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(corpora(), min_size=SHARDS, max_size=SHARDS), several=st.lists(queries(), min_size=1, max_size=4))
def test_answers_are_those_of_one_server(
    service: Service, parts: list[Documents], several: list[tuple[list[int], dict[str, int]]]
) -> None:
    stores, sharded = service
    for store, documents in zip(stores, parts, strict=True):
        store.documents = documents
    every = [document for documents in parts for document in documents]
    bounds = several[0][1]
    limits = [bounds[name] for name in ("max_match", "min_match")]
    contexts = [context for context, _ in several]
    matches = sharded.lookup_batch(contexts, *limits)
    assert matches == [oracle.lookup(every, context, *limits) for context in contexts]
    sizes = [each["max_nodes"] for _, each in several]
    trees = sharded.draft_batch(contexts, *limits, bounds["max_depth"], sizes)
    for context, tree, size in zip(contexts, trees, sizes, strict=True):
        expected = oracle.draft(every, context, *limits, bounds["max_depth"], size)
        assert paths(tree) == expected
        assert (tree.match_length, tree.match_count) == oracle.lookup(every, context, *limits)
        assert not tree.partial
        assert tree.counts is not None
        np.testing.assert_array_equal(tree.scores, (tree.counts / max(1, tree.match_count)).astype(np.float32))
    assert sharded.servers.partial == {"shard": 0, "unproven": 0}
