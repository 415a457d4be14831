"""Tests drafts from predicted texts: the position in the prediction, the drafts there, and no cost without a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
import pytest

from suffolk.serving.decoding.drafters.load import make_drafter
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.drafters.retrieval.prediction import (
    CONFIDENT,
    MAX_SUFFIX,
    PredictionAlignment,
    PredictionDrafter,
)
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.drafters.retrieval.with_request_texts import WithRequestTexts
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.brute_force import BruteForceRetriever
from tests.support.drafters import Free, alone
from tests.support.tiny_models import tiny_model

VOCAB = 300
PROMPT = (7, 8)
SOURCE = source_bits("prediction")


def request(
    text: Sequence[int], prediction: Sequence[int] | None, max_nodes: int = 8, number: int = 1, temperature: float = 0.0
) -> DraftRequest:
    return DraftRequest(
        number,
        np.array([*PROMPT, *text], np.int32),
        max_nodes,
        len(PROMPT),
        SamplingSettings(temperature=temperature),
        prediction=None if prediction is None else np.array(prediction, np.int32),
    )


def drafted(drafter: PredictionDrafter, each: DraftRequest) -> list[int]:
    """The tokens of the draft, which is a chain."""
    (tree,) = drafter.propose([each])
    assert tree.parents.tolist() == list(range(-1, len(tree) - 1))
    assert set(tree.sources.tolist()) <= {SOURCE}
    assert np.all(np.diff(tree.scores) <= 0)
    return tree.tokens.tolist()


def oracle(prediction: list[int], text: list[int]) -> tuple[int, int]:
    """Return (position, matched) after ``text`` by the definition of ``PredictionAlignment``, trying every place."""
    position = matched = anchor = 0
    for end in range(1, len(text) + 1):
        if prediction[position : position + 1] == text[end - 1 : end]:
            position, matched = position + 1, matched + 1
        else:
            lengths = {
                place: max(
                    size
                    for size in range(min(place, end, MAX_SUFFIX) + 1)
                    if prediction[place - size : place] == text[end - size : end]
                )
                for place in range(len(prediction) + 1)
            }
            matched = max(lengths.values())
            places = [place for place, length in lengths.items() if length == matched]
            after = [place for place in places if place > anchor]
            position = anchor if not matched else after[0] if after else places[-1]
        if matched >= CONFIDENT:
            anchor = position
    return position, matched


@pytest.mark.parametrize("seed", range(30))
def test_a_text_is_aligned_as_by_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    vocab = int(rng.integers(2, 30))
    prediction = rng.integers(0, vocab, int(rng.integers(0, 60))).tolist()
    text = list(prediction)
    for _ in range(int(rng.integers(0, 6))):  # edits: insertions, deletions, replacements
        at, size = (int(each) for each in rng.integers(0, (len(text) + 1, 12)))
        text[at : at + size] = rng.integers(0, vocab, int(rng.integers(0, 12))).tolist()
    alignment = PredictionAlignment(np.array(prediction, np.int32))
    end = 0
    while end < len(text):
        step = int(rng.integers(1, 9))
        before = copy(alignment)
        alignment.append(text[end : end + step])
        assert (before.size, before.position, before.matched) == (end, *oracle(prediction, text[:end]))
        end = min(end + step, len(text))
        assert (alignment.size, alignment.position, alignment.matched) == (end, *oracle(prediction, text[:end]))


def test_drafts_follow_the_prediction_and_return_to_it_after_differences() -> None:
    prediction = list(range(100, 160))
    drafter = PredictionDrafter()
    assert drafted(drafter, request([], prediction)) == prediction[:8]  # initially the start of the prediction
    assert drafted(drafter, request(prediction[:20], prediction)) == prediction[20:28]
    inserted = [*prediction[:20], 1, 2]
    assert drafted(drafter, request(inserted, prediction)) == prediction[20:28]
    assert drafted(drafter, request([*inserted, 120, 121], prediction)) == prediction[22:30]
    deleted = [*inserted, 120, 121, 140]
    assert drafted(drafter, request(deleted, prediction)) == prediction[41:49]
    assert drafted(drafter, request([*deleted, *prediction[41:58]], prediction)) == prediction[58:]  # its last position
    assert drafted(drafter, request([*deleted, *prediction[41:]], prediction)) == []


def test_repeated_passages_are_told_apart_by_the_last_position() -> None:
    prediction = [*range(50, 60), 1, 2, *range(60, 70), 1, 2, *range(70, 80), 1, 2, 90]
    drafter = PredictionDrafter()
    assert drafted(drafter, request([*range(50, 60), 5, 1, 2], prediction, 1)) == [60]
    assert drafted(drafter, request([*range(50, 60), 5, 1, 2, *range(60, 70), 5, 1, 2], prediction, 1)) == [70]


def test_requests_are_apart_and_may_be_rolled_back() -> None:
    drafter = PredictionDrafter()
    one, other = list(range(10, 40)), list(range(60, 90))
    trees = drafter.propose([request(one[:5], one, number=1), request(other[:9], other, number=2)])
    assert [tree.tokens[0] for tree in trees] == [15, 69]
    assert drafted(drafter, request(one[:2], one)) == one[2:10]
    drafter.release(1)
    assert drafted(drafter, request([], other)) == other[:8]


def test_drafts_behind_paths_leave_the_text_as_it_is() -> None:
    prediction = list(range(10, 40))
    drafter = PredictionDrafter()
    each = request(prediction[:3], prediction)
    drafter.draft([each])
    paths = [np.array(path, np.int32) for path in ([13, 14], [5], [20], [])]
    (trees,) = drafter.draft_after([each], [paths])
    assert [tree.tokens[0] for tree in trees] == [15, 10, 21, 13]
    assert drafted(drafter, each) == prediction[3:11]
    assert [len(tree) for tree in drafter.draft_after([request([], None)], [paths])[0]] == [0] * 4


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_scores_fall_with_wrong_predictions_and_rise_with_right_ones(temperature: float) -> None:
    drafter, prediction = PredictionDrafter(), list(range(10, 40))
    each = request(prediction[:3], prediction, temperature=temperature)
    seen = []
    for tokens in ([13, 14, 15, 16, 17, 18, 19, 20, 21], [99]):
        for _ in range(200):
            (tree,) = drafter.propose([each])
            drafter.observe({1: np.array(tokens, np.int32)})
        seen.append(float(tree.scores.sum()))
    assert seen[0] > 1.5 * seen[1]


@pytest.mark.parametrize("name", ["prompt-lookup", "datastore", "hybrid", "prediction"])
def test_drafters_that_merge_retrieval_take_predictions(name: str) -> None:
    stores = [BruteForceRetriever([[7, 8, 3, 4]], VOCAB)]
    drafter = make_drafter(name, VOCAB, stores)
    assert drafter is not None
    with_one, without = drafter.propose([request([], [5, 6]), request([], None, number=2)])
    assert {5, 6} <= set(with_one.tokens.tolist())
    assert not set(without.sources.tolist()) & {SOURCE}
    assert {5, 6}.isdisjoint(without.tokens.tolist())
    drafter.observe({1: np.array([5, 6, 9], np.int32)})
    drafter.release(1)
    drafter.close()


def test_several_datastores_and_a_prediction_are_one_tree() -> None:
    stores = [BruteForceRetriever([[8, 3]], VOCAB), BruteForceRetriever([[8, 4]], VOCAB)]
    drafter = make_drafter("datastore", VOCAB, stores)
    assert drafter is not None
    (tree,) = drafter.propose([request([], [5])])
    assert set(tree.tokens.tolist()) == {3, 4, 5}


def test_a_request_without_a_prediction_gets_the_source_s_own_draft() -> None:
    each = request([1, 2, 3, 1, 2], None)
    own = PromptLookupDrafter(VOCAB)
    (expected,) = own.propose([each])
    both = WithRequestTexts(PromptLookupDrafter(VOCAB), [PredictionDrafter()])
    (found,) = both.propose([each])
    for name in ("tokens", "parents", "scores", "sources"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()
    assert both.stats() == own.stats()


def test_a_request_searches_the_datastores_that_it_names() -> None:
    class Named(BruteForceRetriever):
        def __init__(self, name: str, token: int) -> None:
            super().__init__([[7, 8, token]], VOCAB)
            self._own = name

        @property
        def name(self) -> str:
            return self._own

    drafter = make_drafter("hybrid", VOCAB, [Named("wiki", 3), Named("code", 4)])
    assert drafter is not None

    def tokens(names: tuple[str, ...] | None) -> list[int]:
        options = DraftOptions(datastores=names)
        (tree,) = drafter.propose([DraftRequest(1, np.array(PROMPT, np.int32), 8, 2, options=options)])
        return sorted(tree.tokens.tolist())

    assert [tokens(names) for names in (None, ("wiki",), ("code",), ("code", "wiki"), ())] == [
        [3, 4], [3], [4], [3, 4], [],
    ]  # fmt: skip
    assert drafter.stats()["failed"] == 0


def test_counts_of_a_prediction() -> None:
    settings = SamplingSettings(max_new_tokens=60, ignore_eos=True)
    target, drafter = Target.wrap(tiny_model()), PredictionDrafter()
    expected = alone(target, PROMPT, settings)
    other = next(token for token in range(target.vocab_size) if token not in expected)

    def counts(prediction: list[int], name: str) -> tuple[int, int, float]:
        generation = engine.generate(PROMPT, settings, name, options=DraftOptions(prediction))
        list(generation)
        assert generation.tokens == expected
        stats = generation.stats
        return stats.accepted_prediction_tokens, stats.rejected_prediction_tokens, stats.mean_generated_length

    with Engine(target, {"prediction": drafter}, Free(), capacity=200) as engine:
        accepted, rejected, mean = counts(expected, "prediction")
        assert (rejected, accepted > 30, mean > 2) == (0, True, True)
        assert counts([other] * 9, "prediction")[:2] == (0, 9)
        assert counts([*expected[:20], other, *expected[20:], other], "none")[:2] == (0, 2)
        assert counts([], "prediction")[:2] == (0, 0)
