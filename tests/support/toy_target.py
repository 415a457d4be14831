"""Targets small enough to enumerate, and the exact distribution of a first step with drafts followed by plain decoding."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from tests.support.drafters import tree

TEXT = 3
"""Tokens of a text."""

Text = tuple[int, ...]
Distribution = npt.NDArray[np.float64]
Outcomes = Iterable[tuple[Text, float]]
Rule = Callable[[DraftTree, npt.NDArray[np.int64]], Text]


class ToyTarget:
    """A random distribution of the next token behind every text shorter than ``TEXT``; behind longer ones all tokens are alike.

    ``cut``: so many tokens of every distribution have probability 0, as after top-k.
    """

    def __init__(self, vocab: int, seed: int, cut: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.vocab = vocab
        self._distributions: dict[Text, Distribution] = {}
        for size in range(TEXT):
            for text in itertools.product(range(vocab), repeat=size):
                distribution = rng.dirichlet(np.full(vocab, 0.7))
                distribution[np.argsort(distribution)[:cut]] = 0
                self._distributions[text] = distribution / distribution.sum()
        self._sum_up()

    def _sum_up(self) -> None:
        self._rests = {text: np.ones(1) for text in itertools.product(range(self.vocab), repeat=TEXT)}
        for text in sorted(self._distributions, key=len, reverse=True):
            parts = [self._distributions[text][token] * self._rests[text + (token,)] for token in range(self.vocab)]
            self._rests[text] = np.concatenate(parts)

    def distribution(self, text: Text) -> Distribution:
        """float64[vocab], of the token behind ``text``."""
        return self._distributions.get(text, np.full(self.vocab, 1 / self.vocab))

    def joint(self) -> Distribution:
        """float64[vocab ** TEXT], the distribution of texts by plain decoding."""
        return self._rests[()]

    def output(self, steps: Outcomes) -> Distribution:
        """As ``joint``, of texts that begin with what a first step commits and go on by plain decoding."""
        distribution = np.zeros(self.vocab**TEXT)
        weights: dict[Text, float] = {}
        for text, weight in steps:
            weights[text[:TEXT]] = weights.get(text[:TEXT], 0.0) + weight
        for text, weight in weights.items():
            rest = self._rests[text]
            start = sum(token * self.vocab ** (TEXT - 1 - place) for place, token in enumerate(text))
            distribution[start : start + len(rest)] += weight * rest
        return distribution


def distance(distribution: Distribution, other: Distribution) -> float:
    """The total variation between two distributions."""
    return float(np.abs(distribution - other).sum() / 2)


def check_distribution(target: ToyTarget, steps: Outcomes, tolerance: float = 1e-9) -> None:
    """Assert that texts which begin with these first steps follow the target's own distribution."""
    found = distance(target.output(steps), target.joint())
    assert found <= tolerance, f"the output's distribution is {found:.3g} from the target's"


def all_trees(size: int, vocab: int) -> Iterator[DraftTree]:
    """Every tree of ``size`` nodes over ``vocab`` tokens, parents before children; those with equal siblings too."""
    for parents in itertools.product(*(range(-1, node) for node in range(size))):
        for tokens in itertools.product(range(vocab), repeat=size):
            yield tree(tokens, parents)


def trees_up_to_names(size: int, vocab: int) -> Iterator[DraftTree]:
    """As ``all_trees``, one for all that differ only in the tokens' names: each token is a known one or the next new one."""
    for draft in all_trees(size, vocab):
        newest = np.maximum.accumulate(np.append(-1, draft.tokens))
        if (draft.tokens <= newest[:-1] + 1).all():
            yield draft


def contexts(draft: DraftTree) -> list[Text]:
    """The drafted tokens behind which each row draws: row 0 none, row i + 1 the path to node i."""
    texts: list[Text] = [()]
    for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
        texts.append((*texts[parent + 1], token))
    return texts


class FirstSteps:
    """What a first step commits, for every vector of draws at those rows of ``draft`` that draw a token of the text.

    ``rule``: what is committed, given the tree and int64[rows] drawn tokens.
    """

    def __init__(self, draft: DraftTree, vocab: int, rule: Rule) -> None:
        self.vocab = vocab
        texts = contexts(draft)
        self.rows = [row for row, text in enumerate(texts) if len(text) < TEXT]
        self.texts = [texts[row] for row in self.rows]
        self.drawn = np.zeros((vocab ** len(self.rows), len(texts)), np.int64)
        self.drawn[:, self.rows] = np.indices((vocab,) * len(self.rows)).reshape(len(self.rows), -1).T
        self.committed = [rule(draft, vector) for vector in self.drawn]

    def independent(self, target: ToyTarget) -> Outcomes:
        """Where every row draws for itself."""
        distributions = [target.distribution(text) for text in self.texts]
        return zip(self.committed, functools.reduce(np.multiply.outer, distributions).ravel().tolist(), strict=True)

    def shared(self, target: ToyTarget) -> Outcomes:
        """Where all rows of one depth draw with one uniform number: each the token whose part of 0..1 holds it."""
        distributions = [target.distribution(text) for text in self.texts]
        pieces = [self._pieces(distributions, depth) for depth in sorted({len(text) for text in self.texts})]
        for chosen in itertools.product(*pieces):
            vector = sum(place for place, _ in chosen)
            yield self.committed[vector], math.prod(width for _, width in chosen)

    def _pieces(self, distributions: Sequence[Distribution], depth: int) -> list[tuple[int, float]]:
        """The parts of 0..1 in which no row of ``depth`` changes its draw: their share of the vector's number, their width."""
        own = [place for place, text in enumerate(self.texts) if len(text) == depth]
        sums = np.stack([np.append(distributions[place].cumsum()[:-1], 1.0) for place in own])
        ends = np.unique(np.append(sums, 0.0))
        middles = (ends[1:] + ends[:-1]) / 2
        tokens = (sums[:, :, None] <= middles).sum(1)
        digits = self.vocab ** (len(self.rows) - 1 - np.array(own))
        return list(zip((digits @ tokens).tolist(), np.diff(ends).tolist(), strict=True))
