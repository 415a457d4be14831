"""Acceptance rules from published code that change the target's distribution. The proofs must reject them.

Every function returns the outcomes of a first step, (committed tokens, probability), for the tests' target.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.engine.sampling.verification.match import accept
from suffolk.serving.decoding.engine.sampling.verification.rejection import acceptance, residual
from tests.support.toy_target import Outcomes, Text, ToyTarget


def longest_row(target: ToyTarget, rows: Sequence[Text], redraw: bool) -> Outcomes:
    """Rows with a shared prefix sample separately, and the longest accepted row is used.

    The reference code of REST (`generate_candidates` and `evaluate_posterior`, temperature above 0) and the sampled
    modes of Medusa do this. With ``redraw``, the token that ended the row is discarded and sampled again, as in REST.
    """
    ways = [list(_draws(target, row)) for row in rows]
    for chosen in itertools.product(*ways):
        best = max(chosen, key=lambda way: way[0])  # the first of the longest rows
        length, token, _ = best
        row = rows[chosen.index(best)]
        yield row[:length] if redraw else (*row[:length], token), math.prod(weight for *_, weight in chosen)


def _draws(target: ToyTarget, row: Text) -> Iterator[tuple[int, int, float]]:
    """Yield (matching tokens, next sample, probability) of sampling along ``row``."""
    reached = 1.0
    for length in range(len(row) + 1):
        distribution = target.distribution(row[:length])
        for token in range(target.vocab):
            if length == len(row) or token != row[length]:
                yield length, token, reached * distribution[token]
        reached *= distribution[row[length]] if length < len(row) else 0.0


def redraw_after_mismatch(draft: DraftTree, drawn: npt.NDArray[np.int64]) -> Text:
    """Each node is sampled once.

    A sample without a child is discarded and sampled again in the next step, as in REST's code.
    """
    return tuple(draft.tokens[accept(draft.tokens, draft.parents, drawn)].tolist())


def best_beam(target: ToyTarget, drafter: ToyTarget, beams: Sequence[Text]) -> Outcomes:
    """Beams of a search are tested by min(1, p / q) as if they were samples, and the beam with most accepted tokens is used.

    ReDrafter's reference code does this at temperatures above 0, and lists the bias among its known issues.
    """
    ways = [list(_verdicts(target, drafter, beam)) for beam in beams]
    for chosen in itertools.product(*ways):
        best = max(chosen, key=lambda way: len(way[0]))
        follow = target.distribution(best[0])
        beam = beams[chosen.index(best)]
        if len(best[0]) < len(beam):
            follow = _residual(follow, drafter.distribution(best[0]))
        weight = math.prod(each for _, each in chosen)
        for token in range(target.vocab):
            yield (*best[0], token), weight * follow[token]


def _verdicts(target: ToyTarget, drafter: ToyTarget, beam: Text) -> Iterator[tuple[Text, float]]:
    reached = 1.0
    for length, token in enumerate(beam):
        wanted, proposed = (model.distribution(beam[:length])[token] for model in (target, drafter))
        kept = float(acceptance(torch.tensor(wanted), torch.tensor(proposed)))
        yield beam[:length], reached * (1 - kept)
        reached *= kept
    yield beam, reached


def _residual(target: npt.NDArray[np.float64], drafter: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return residual(torch.from_numpy(target), torch.from_numpy(drafter)).numpy()
