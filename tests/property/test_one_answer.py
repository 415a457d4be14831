"""A corpus gives the same answers in 1 and in several segments, before and after deletion and compaction, for every token width."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suffolk.build_index.compact import compact
from suffolk.build_index.delete import delete
from suffolk.datastore.datastore import Datastore, open_datastore
from tests.property.test_retrieval import VOCAB_SIZES, Documents, paths
from tests.support import oracle
from tests.support.stores import make_store

BOUNDS = {"max_match": 8, "min_match": 1, "max_depth": 6, "max_nodes": 40}
SEGMENTS = {2: (1, 16), 3: (1, 16), 4: (2,)}
"""Numbers of segments by token width. With 4-byte tokens each segment has a table of 64 MB."""


def make_documents(width: int, seed: int) -> Documents:
    """About 30,000 tokens that resemble natural language.

    Few tokens are common and many are rare; phrases repeat, and one document repeats.
    """
    generator = np.random.default_rng(seed)
    phrases = [generator.zipf(1.3, int(size)) % 500 for size in generator.integers(2, 12, 60)]
    documents = []
    for size in generator.integers(0, 60, 160):
        parts = [phrases[int(number) % 60] for number in generator.zipf(1.2, int(size))]
        tokens = np.concatenate([*parts, generator.zipf(1.3, 5) % 500])
        documents.append((VOCAB_SIZES[width] - 1 - tokens).tolist())
    return [*documents, documents[7]]


def make_contexts(documents: Documents, seed: int) -> list[list[int]]:
    """Contexts of three kinds: the most common tokens, windows of the corpus, and windows with one changed token."""
    generator = np.random.default_rng(seed)
    tokens = [token for document in documents for token in document]
    values, counts = np.unique(tokens, return_counts=True)
    contexts = [[int(values[place])] for place in np.argsort(counts)[-6:]]
    for start in generator.integers(0, len(tokens) - 8, 12):
        window = tokens[start : start + 8]
        contexts += [window, [*window[:4], tokens[0], *window[5:]]]
    return contexts


@pytest.mark.parametrize(("width", "seed"), [(2, 1), (2, 2), (3, 3), (4, 4)])
def test_the_answer_depends_on_the_corpus_alone(width: int, seed: int, tmp_path: Path) -> None:
    documents = make_documents(width, seed)
    contexts = make_contexts(documents, seed)
    gone = set(range(0, len(documents), 5)) | {7}
    left = [document for number, document in enumerate(documents) if number not in gone]
    before = [(oracle.lookup(documents, ids, 8, 1), oracle.draft(documents, ids, **BOUNDS)) for ids in contexts]
    after = [(oracle.lookup(left, ids, 8, 1), oracle.draft(left, ids, **BOUNDS)) for ids in contexts]
    for pieces in SEGMENTS[width]:
        path = tmp_path / str(pieces)
        cuts = [list(part) for part in np.array_split(np.arange(len(documents)), pieces)]
        origins = [[(f"document {number}", {"fifth": number in gone}) for number in part] for part in cuts]
        segments = [[documents[number] for number in part] for part in cuts]
        with make_store(path, segments, vocab_size=VOCAB_SIZES[width], origins=origins) as datastore:
            assert ask(datastore, contexts) == before
            datastore.verify("full")
            assert datastore.info()["token_width"] == width
        assert delete(path, where=["fifth=true"]).documents == len(gone)
        assert ask_again(path, contexts) == after
        assert compact(path).segments == 1
        assert ask_again(path, contexts) == after


def ask_again(path: Path, contexts: list[list[int]]) -> list[object]:
    with open_datastore(path, threads=2) as datastore:
        return ask(datastore, contexts)


def ask(datastore: Datastore, contexts: list[list[int]]) -> list[object]:
    trees = datastore.draft_batch(contexts, **BOUNDS)
    matches = datastore.lookup_batch(contexts, 8, 1)
    assert [(tree.match_length, tree.match_count) for tree in trees] == [tuple(match) for match in matches]
    return [(tuple(match), paths(tree)) for match, tree in zip(matches, trees, strict=True)]
