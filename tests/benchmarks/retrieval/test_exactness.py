"""Tests the comparison of drafts and lookups with a scan of the corpus."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suffolk.benchmarks.datastore_options import RetrievalBenchOptions
from suffolk.benchmarks.retrieval.contexts import join_documents, sample_seen
from suffolk.benchmarks.retrieval.quality import CorpusScan, accepted_length, check_counts
from suffolk.datastore.errors import Internal
from tests.support import oracle
from tests.support.stores import make_store, random_documents

VOCAB = 7


@pytest.mark.parametrize("seed", range(4))
def test_scan_finds_what_the_oracle_finds(tmp_path: Path, seed: int) -> None:
    documents = random_documents(12, 40, seed, VOCAB)
    with make_store(tmp_path / "store", [documents[:5], documents[5:]], vocab_size=VOCAB) as store:
        scan = CorpusScan(*join_documents(store))
    chooser = np.random.default_rng(seed)
    for _ in range(25):
        context = chooser.integers(0, VOCAB, int(chooser.integers(1, 9))).tolist()
        min_match = int(chooser.integers(1, 4))
        assert scan.lookup(context, 6, min_match) == oracle.lookup(documents, context, 6, min_match)
        assert scan.draft(context, 6, min_match, 4, 20) == oracle.draft(documents, context, 6, min_match, 4, 20)


def test_scan_of_an_absent_token_finds_nothing(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", [[[1, 2, 1]]], vocab_size=VOCAB) as store:
        scan = CorpusScan(*join_documents(store))
    assert scan.lookup([5], 4, 1) == (0, 0)
    assert scan.draft([5], 4, 1, 4, 20) == []


def test_a_wrong_answer_stops_the_measurement(tmp_path: Path) -> None:
    options = RetrievalBenchOptions(store=tmp_path / "store", workdir=tmp_path, queries=10, checked=10, context=4)
    documents = random_documents(20, 30, 1, VOCAB)
    with make_store(tmp_path / "store", [documents], vocab_size=VOCAB) as store:
        tokens, starts = join_documents(store)
        seen = sample_seen(tokens, starts, 10, 4, 4, 3)
        checked = check_counts(store, CorpusScan(tokens, starts), seen, options)
        assert checked["contexts"] == 10
        assert checked["nodes"] > 0
        wrong = tokens.copy()
        wrong[::3] = 0
        with pytest.raises(Internal, match="differs from a scan of the corpus"):
            check_counts(store, CorpusScan(wrong, starts), seen, options)


def test_accepted_length_follows_the_true_continuation() -> None:
    paths = {(3,), (3, 4), (3, 4, 5), (3, 9)}
    assert accepted_length(paths, [3, 4, 5, 6]) == 3
    assert accepted_length(paths, [3, 9, 5]) == 2
    assert accepted_length(paths, [4]) == 0
    assert accepted_length(paths, []) == 0
