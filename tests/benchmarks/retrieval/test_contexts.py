"""Tests the contexts of retrieval measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.benchmarks.datastore_options import RetrievalBenchOptions
from suffolk.benchmarks.retrieval.contexts import join_documents, read_texts, sample_seen, spoil
from suffolk.datastore.errors import InvalidArgument
from tests.support import oracle
from tests.support.json_lines import write_rows
from tests.support.stores import make_store, random_documents

VOCAB = 7


def test_seen_contexts_and_their_continuations_stand_in_one_document(tmp_path: Path) -> None:
    documents = random_documents(20, 30, 1, VOCAB)
    with make_store(tmp_path / "store", [documents], vocab_size=VOCAB) as store:
        seen = sample_seen(*join_documents(store), 60, 5, 4, 3)
    assert len(seen.contexts) == 60
    for context, continuation in zip(seen.contexts, seen.continuations, strict=True):
        assert len(context) == 5
        assert 1 <= len(continuation) <= 4
        assert oracle.occurrences(documents, [*context, *continuation])
    assert any(len(continuation) < 4 for continuation in seen.continuations)  # documents end


def test_contexts_depend_only_on_the_seed(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", [random_documents(20, 30, 1, VOCAB)], vocab_size=VOCAB) as store:
        tokens, starts = join_documents(store)
    assert sample_seen(tokens, starts, 9, 5, 4, 3) == sample_seen(tokens, starts, 9, 5, 4, 3)
    assert sample_seen(tokens, starts, 9, 5, 4, 3) != sample_seen(tokens, starts, 9, 5, 4, 4)


def test_contexts_longer_than_every_document_are_refused(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", [[[1, 2, 3]]], vocab_size=VOCAB) as store:
        tokens, starts = join_documents(store)
    with pytest.raises(InvalidArgument, match="no document has more than 3 tokens"):
        sample_seen(tokens, starts, 5, 3, 4, 0)


def test_spoiling_changes_one_token_of_the_later_half(tmp_path: Path) -> None:
    with make_store(tmp_path / "store", [random_documents(20, 30, 1, VOCAB)], vocab_size=VOCAB) as store:
        seen = sample_seen(*join_documents(store), 40, 6, 4, 3)
    unseen = spoil(seen, VOCAB, 5)
    for before, after in zip(seen.contexts, unseen.contexts, strict=True):
        changed = [place for place in range(6) if before[place] != after[place]]
        assert len(changed) == 1
        assert changed[0] >= 3
        assert 0 <= after[changed[0]] < VOCAB


@pytest.mark.parametrize(("batches", "max_nodes", "most"), [((1, 257), 64, 256), ((129,), 1024, 128)])
def test_batches_too_large_for_a_service_are_rejected_at_the_start(
    batches: tuple[int, ...], max_nodes: int, most: int
) -> None:
    """Regression: batches that are too large for a service used to be rejected last. All other results were then lost."""
    settings = {"batches": batches, "max_nodes": max_nodes}
    RetrievalBenchOptions(store=Path("store"), **settings)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=f"through gRPC, with {max_nodes} nodes a draft, each must be {most} or"):
        RetrievalBenchOptions(store=Path("store"), grpc=True, **settings)  # type: ignore[arg-type]


def test_texts_of_rows_and_files(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", [{"text": "one"}, {"messages": [{"role": "user", "content": "two"}]}])
    assert read_texts(tmp_path / "a.jsonl") == ["one", "two\n"]
    (tmp_path / "b.py").write_text("three\nfour\n")
    assert read_texts(tmp_path / "b.py") == ["three\nfour\n"]
    write_rows(tmp_path / "c.jsonl", [{"x": 1}])
    with pytest.raises(InvalidArgument, match="line 1 has no 'text'"):
        read_texts(tmp_path / "c.jsonl")
