"""Targets small enough to enumerate, and the exact distribution of a drafted first step followed by plain decoding."""

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
"""Number of tokens of a text."""

Text = tuple[int, ...]
Distribution = npt.NDArray[np.float64]
Outcomes = Iterable[tuple[Text, float]]
Rule = Callable[[DraftTree, npt.NDArray[np.int64]], Text]


class ToyTarget:
    """A random next-token distribution after every text shorter than ``TEXT``, and a uniform one after longer texts.

    ``cut``: number of tokens with probability 0 in every distribution, as after top-k.
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
        """Return float64[vocab], the distribution of the token after ``text``."""
        return self._distributions.get(text, np.full(self.vocab, 1 / self.vocab))

    def joint(self) -> Distribution:
        """Return float64[vocab ** TEXT], the distribution of texts from plain decoding."""
        return self._rests[()]

    def output(self, steps: Outcomes) -> Distribution:
        """Like ``joint``, for texts that begin with the tokens of a first step and continue with plain decoding."""
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
    """Return the total variation between two distributions."""
    return float(np.abs(distribution - other).sum() / 2)


def check_distribution(target: ToyTarget, steps: Outcomes, tolerance: float = 1e-9) -> None:
    """Assert that texts that begin with these first steps follow the target's distribution."""
    found = distance(target.output(steps), target.joint())
    assert found <= tolerance, f"the output's distribution is {found:.3g} from the target's"


def all_trees(size: int, vocab: int) -> Iterator[DraftTree]:
    """Yield every tree of ``size`` nodes over ``vocab`` tokens, parents before children, also with equal siblings."""
    for parents in itertools.product(*(range(-1, node) for node in range(size))):
        for tokens in itertools.product(range(vocab), repeat=size):
            yield tree(tokens, parents)


def trees_up_to_names(size: int, vocab: int) -> Iterator[DraftTree]:
    """Like ``all_trees``, but only one of the trees that differ by a renaming of tokens.

    Each token occurred before, or is the next new one.
    """
    for draft in all_trees(size, vocab):
        newest = np.maximum.accumulate(np.append(-1, draft.tokens))
        if (draft.tokens <= newest[:-1] + 1).all():
            yield draft


def contexts(draft: DraftTree) -> list[Text]:
    """Return the drafted tokens before the sample of each row: none for row 0, the path to node i for row i + 1."""
    texts: list[Text] = [()]
    for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist(), strict=True):
        texts.append((*texts[parent + 1], token))
    return texts


class FirstSteps:
    """The outcomes of a first step, for every combination of sampled tokens. Rows beyond the text's end are left out.

    ``rule``: returns the committed tokens, given the tree and int64[rows] sampled tokens.
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
        """Yield the outcomes if every row samples independently."""
        distributions = [target.distribution(text) for text in self.texts]
        return zip(self.committed, functools.reduce(np.multiply.outer, distributions).ravel().tolist(), strict=True)

    def shared(self, target: ToyTarget) -> Outcomes:
        """Yield the outcomes if all rows of one depth share one uniform number.

        Each row samples the token whose interval of 0..1 contains the number.
        """
        distributions = [target.distribution(text) for text in self.texts]
        pieces = [self._pieces(distributions, depth) for depth in sorted({len(text) for text in self.texts})]
        for chosen in itertools.product(*pieces):
            vector = sum(place for place, _ in chosen)
            yield self.committed[vector], math.prod(width for _, width in chosen)

    def _pieces(self, distributions: Sequence[Distribution], depth: int) -> list[tuple[int, float]]:
        """Split 0..1 into intervals with constant samples at all rows of ``depth``.

        Returns for each interval the number that it adds to the index into ``committed``, and its width.
        """
        own = [place for place, text in enumerate(self.texts) if len(text) == depth]
        sums = np.stack([np.append(distributions[place].cumsum()[:-1], 1.0) for place in own])
        ends = np.unique(np.append(sums, 0.0))
        middles = (ends[1:] + ends[:-1]) / 2
        tokens = (sums[:, :, None] <= middles).sum(1)
        digits = self.vocab ** (len(self.rows) - 1 - np.array(own))
        return list(zip((digits @ tokens).tolist(), np.diff(ends).tolist(), strict=True))
