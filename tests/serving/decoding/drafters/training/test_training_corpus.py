"""Tests the windows of documents, for training and for evaluation."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.training.corpus import AHEAD, cut, make_corpus
from suffolk.serving.decoding.drafters.training.documents import TrainingDocument, is_held_out, key_of
from suffolk.serving.decoding.drafters.training.options import Regeneration
from tests.support.training_runs import default_options


def document(size: int, key: bytes = b"\xff" * 32, begin: int = 0) -> TrainingDocument:
    return TrainingDocument(np.arange(size, dtype=np.int32), np.arange(size) >= begin, key)


def test_windows_cover_a_document_without_what_is_too_short() -> None:
    sizes = [len(window.tokens) for window in cut(document(45), 20, 5)]
    assert sizes == [20, 20, 5]
    assert [len(window.tokens) for window in cut(document(44), 20, 5)] == [20, 20]
    assert [window.tokens[0] for window in cut(document(60, begin=21), 20, 5)] == [20, 40]
    assert not list(cut(document(20, begin=20), 20, 5))
    only_first = TrainingDocument(np.arange(20, dtype=np.int32), np.arange(20) < AHEAD, b"")
    assert not list(cut(only_first, 20, 5))  # no draft can reach these


def test_held_out_documents_are_chosen_by_content_alone() -> None:
    keys = [key_of(f"document {number}") for number in range(4000)]
    shares = [sum(is_held_out(key, share) for key in keys) / 4000 for share in (0.0, 0.1, 0.5)]
    assert shares == pytest.approx([0.0, 0.1, 0.5], abs=0.03)
    documents = [document(20 + number % 7, key) for number, key in enumerate(keys)]
    one = make_corpus(documents, default_options(held_out=0.1), 2, Counter())
    other = make_corpus(documents[::-1], default_options(held_out=0.1, seed=9), 2, Counter())
    assert one.held_out_documents == other.held_out_documents == sum(is_held_out(key, 0.1) for key in keys)
    assert one.documents + one.held_out_documents == 4000


@pytest.mark.parametrize(
    ("documents", "more", "said"),
    [
        ([], {}, "corpus x: nothing to learn from .no documents at all.; name files with text"),
        (
            [document(3)],
            {},
            "1 documents of fewer than 4 tokens; a document needs 4 tokens, two more than the head's depth, and the longest "
            "has 3.; give longer texts",
        ),
        ([document(30, begin=30)], {}, "1 documents in which nothing counts"),
        (
            [document(3)],
            {"regenerate": Regeneration()},
            "the longest has 3.; raise max_new_tokens, or give longer prompts",
        ),
        (
            [document(30)],
            {"held_out": 0.1},
            "corpus x: it is one document, so none can be held out .* or set held_out to 0",
        ),
        ([document(30)] * 2, {"held_out": 0.1}, "its 2 documents are copies of one, so none can be held out"),
        (
            [document(30), document(3)],
            {"held_out": 0.1},
            "it is one document .left out: 1 documents of fewer than 4 tokens., so none can be held out",
        ),
        ([document(30, b"\0" * 32)], {"held_out": 0.1}, "it is one document"),
    ],
)
def test_a_corpus_of_nothing_is_refused(documents: list[TrainingDocument], more: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        make_corpus(documents, default_options(**({"held_out": 0.0} | more)), 2, Counter())


@pytest.mark.parametrize(("share", "held_out"), [(1e-9, {1}), (0.5, {1, 2, 5})])
def test_of_few_documents_one_is_held_out_and_one_trained_on(share: float, held_out: set[int]) -> None:
    """The document with the smallest hash is always held out, with all its copies.

    The document with the largest hash never is.
    """
    documents = [document(20 + number, bytes([number]) * 32) for number in (5, 1, 2, 9, 1)]
    for order in (documents, documents[::-1]):
        corpus = make_corpus(order, default_options(held_out=share, seed=order[0].key[0]), 2, Counter())
        assert {len(window.tokens) - 20 for window in corpus.held_out} == held_out
        assert {len(window.tokens) - 20 for window in corpus.training} == {1, 2, 5, 9} - held_out
        assert corpus.held_out_documents == len(held_out) + 1
    assert not make_corpus(documents, default_options(held_out=0.0), 2, Counter()).held_out


def test_a_window_shorter_than_a_draft_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="window is 8; a head of depth 7 needs 9 tokens"):
        make_corpus([document(30)], default_options(window=8), 7, Counter())


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("rows: a conversation, and the model has no chat template", "use a model that has one, or give texts"),
        ("rows: no answer of an assistant to a question", "give conversations in which an assistant answers"),
        ("the chat template rejects it (a user must begin)", "write conversations as the model's template takes them"),
        ("prompts that leave no room in a window of 8 tokens", "give a larger window, or shorter prompts"),
        ("empty files", "name files with text or conversations"),
    ],
)
def test_advice_follows_the_reason_that_counts_most(reason: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make_corpus([document(3)] * 2, default_options(), 2, Counter({reason: 3}))
    assert str(caught.value) == (
        f"corpus x: nothing to learn from (3 {reason}, 2 documents of fewer than 4 tokens); {said}"
    )
