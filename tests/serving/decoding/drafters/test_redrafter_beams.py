"""Tests the beams of the recurrent drafter. The search equals enumeration, and prefix matching and packing equal a trie."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
import torch

from suffolk.serving.decoding.drafters.neural.redrafter.beams import PAD, BeamSearch, pack
from suffolk.serving.decoding.drafters.registry import source_bits
from tests.support.toy_target import Text

LENGTHS = [3, 2, 1, 3, 0]
ENDS = [[1], [PAD], [1], [PAD], [PAD]]


def log_law(request: int, text: Text, vocab: int) -> npt.NDArray[np.float64]:
    """A random next-token distribution after every text."""
    rng = np.random.default_rng([request, *text])
    return np.asarray(np.log(rng.dirichlet(np.ones(vocab))), np.float64)


def run(width: int, vocab: int) -> BeamSearch:
    search = BeamSearch(torch.tensor(LENGTHS), width, torch.tensor(ENDS))
    while bool(search.open.any()):
        laws = np.full((*search.tokens.shape[:2], vocab), np.nan)  # what is not open must not be looked at
        for request, beam in search.open.nonzero().tolist():
            laws[request, beam] = log_law(request, tuple(search.tokens[request, beam].tolist()), vocab)
        tokens = torch.arange(vocab).expand(*search.tokens.shape[:2], vocab)
        search.grow(torch.from_numpy(laws), tokens)
    return search


def found(search: BeamSearch, request: int) -> list[tuple[Text, float]]:
    beams = []
    for tokens, gains in zip(search.tokens[request].tolist(), search.log_probs[request].tolist(), strict=True):
        text = tuple(token for token in tokens if token != PAD)
        assert tokens == [*text, *[PAD] * (len(tokens) - len(text))]
        assert all(gain == 0 for gain in gains[len(text) :])
        beams.append((text, sum(gains)))
    return beams


def is_whole(request: int, text: Text) -> bool:
    return len(text) == LENGTHS[request] or bool(text and text[-1] == ENDS[request][0])


def plain_search(request: int, width: int, vocab: int) -> list[tuple[Text, float]]:
    beams: list[tuple[Text, float]] = [((), 0.0)]
    while not all(is_whole(request, text) for text, _ in beams):
        grown = [(text, total) for text, total in beams if is_whole(request, text)]
        for text, total in beams:
            if not is_whole(request, text):
                law = log_law(request, text, vocab)
                grown += [((*text, token), total + law[token]) for token in range(vocab)]
        beams = sorted(grown, key=lambda beam: -beam[1])[:width]
    return beams


def all_texts(request: int, vocab: int) -> list[tuple[Text, float]]:
    texts = []
    for size in range(LENGTHS[request] + 1):
        for text in itertools.product(range(vocab), repeat=size):
            begins_whole = any(is_whole(request, text[:part]) for part in range(size))
            if is_whole(request, text) and not begins_whole:
                total = sum(log_law(request, text[:place], vocab)[token] for place, token in enumerate(text))
                texts.append((text, total))
    return sorted(texts, key=lambda beam: -beam[1])


def test_a_search_of_full_width_finds_all_texts_in_order() -> None:
    search = run(width=64, vocab=4)
    for request in range(len(LENGTHS)):
        expected = all_texts(request, 4)
        beams = found(search, request)[: len(expected)]  # followed by the beams without candidates
        assert [text for text, _ in beams] == [text for text, _ in expected]
        assert [total for _, total in beams] == pytest.approx([total for _, total in expected])
        assert sum(math.exp(total) for _, total in beams) == pytest.approx(1)
    assert len(all_texts(0, 4)) == 1 + 3 + 9 * 4  # those that end early, and those that do not


@pytest.mark.parametrize("width", [1, 2, 3, 7])
@pytest.mark.parametrize("vocab", [2, 5, 9])
def test_a_narrow_search_is_the_plain_one(width: int, vocab: int) -> None:
    search = run(width, vocab)
    for request in range(len(LENGTHS)):
        expected = plain_search(request, width, vocab)
        beams = found(search, request)[: len(expected)]
        assert [text for text, _ in beams] == [text for text, _ in expected]
        assert [total for _, total in beams] == pytest.approx([total for _, total in expected])


def test_the_papers_example_is_packed_as_in_its_figure() -> None:
    """Equal tokens after different prefixes are different nodes."""
    beams = torch.tensor([[[91, 92, 93, 95], [91, 92, 94, 95], [91, 92, 93, 97]]])
    chances = torch.tensor([[[0.9, 0.8, 0.5, 0.4], [0.9, 0.8, 0.3, 0.9], [0.9, 0.8, 0.5, 0.2]]], dtype=torch.float64)
    [packed] = pack(beams, chances, source_bits("redrafter"))
    assert packed.tree.tokens.tolist() == [91, 92, 93, 94, 95, 95, 97]
    assert packed.tree.parents.tolist() == [-1, 0, 1, 1, 3, 2, 2]
    assert packed.tree.scores.tolist() == pytest.approx([0.9, 0.72, 0.36, 0.216, 0.1944, 0.144, 0.072])
    assert packed.places.tolist() == [0, 1, 2, 6, 7, 3, 11]


def trie(beams: list[Text], chances: dict[Text, float]) -> dict[Text, float]:
    """Return the score of each prefix of a beam.

    A score is the product of the tokens' probabilities, scaled down if those of siblings exceed 1 in sum.
    """
    scores: dict[Text, float] = {(): 1.0}
    texts = {beam[:size] for beam in beams for size in range(1, len(beam) + 1)}
    for text in sorted(texts, key=len):
        siblings = sum(chances[other] for other in texts if other[:-1] == text[:-1])
        scores[text] = scores[text[:-1]] * chances[text] / max(1.0, siblings)
    del scores[()]
    return scores


@pytest.mark.parametrize("seed", range(12))
def test_packed_beams_are_their_trie(seed: int) -> None:
    rng = np.random.default_rng(seed)
    requests, width, length = 4, int(rng.integers(1, 9)), int(rng.integers(1, 6))
    beams = rng.integers(0, 3, (requests, width, length))
    ends = rng.integers(0, length + 1, (requests, width))
    beams[np.arange(length) >= ends[..., None]] = PAD
    texts = [[tuple(token for token in row if token != PAD) for row in each] for each in beams.tolist()]
    chances = [
        {beam[:size]: float(rng.random()) for beam in each for size in range(1, len(beam) + 1)} for each in texts
    ]
    values = np.ones(beams.shape)
    for request, beam, place in np.argwhere(beams != PAD).tolist():
        values[request, beam, place] = chances[request][texts[request][beam][: place + 1]]
    packed = pack(torch.from_numpy(beams), torch.from_numpy(values), source_bits("redrafter"))
    for request, (tree, places) in enumerate((each.tree, each.places) for each in packed):
        tree.validate(3)
        assert np.all(np.diff(tree.scores) <= 0)
        nodes: list[Text] = []
        for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
            nodes.append((*nodes[parent], token) if parent >= 0 else (token,))
        expected = trie(texts[request], chances[request])
        assert len(set(nodes)) == len(nodes)
        assert set(nodes) == expected.keys()
        assert tree.scores.tolist() == pytest.approx([expected[text] for text in nodes])
        for text, place in zip(nodes, places.tolist(), strict=True):
            assert texts[request][place // length][: place % length + 1] == text


def test_beams_without_tokens_are_empty_trees() -> None:
    packed = pack(
        torch.empty((2, 1, 0), dtype=torch.int64), torch.empty((2, 1, 0), dtype=torch.float64), source_bits("eagle")
    )
    assert [len(each.tree) for each in packed] == [0, 0]
