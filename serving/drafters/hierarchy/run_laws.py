"""From how acceptable the tokens of a text were to the law of how many are accepted in a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.serving.drafters.hierarchy.level import RunLaw

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Starts:
    """What one drafter's tokens were worth to one verifier along a text.

    Attributes:
        chances: float64[n, depth]; entry (s, k): that the verifier accepts token k of a draft from place s on, if it accepts those
            before it. 0 behind the end of a draft, NaN where it is not known: behind the text's end, or where the text went on
            otherwise than the draft.
    """

    chances: Floats

    @staticmethod
    def of_model(chances: Floats, depth: int) -> Starts:
        """Of a model, whose acceptance at each place of the text, float64[n], does not depend on where its draft began."""
        padded = np.append(chances, np.full(depth - 1, np.nan))
        return Starts(np.lib.stride_tricks.sliding_window_view(padded, depth))

    def weights(self, longest: int) -> Floats:
        """float64[n], the expected rounds that begin at each place, where drafts have up to ``longest`` tokens: a round begins one
        token behind those that the round before had accepted."""
        size = len(self.chances)
        weights = np.zeros(size + longest + 2)
        weights[0] = 1.0
        known = np.nan_to_num(self.chances[:, :longest], nan=0.0)
        reach = np.concatenate([np.ones((size, 1)), np.cumprod(known, axis=1)], axis=1)
        law = reach - np.append(reach[:, 1:], np.zeros((size, 1)), axis=1)
        for place in range(size):
            weights[place + 1 : place + 1 + law.shape[1]] += weights[place] * law[place]
        return weights[:size]


def run_law(drafter: str, verifier: str, texts: Sequence[Starts], longest: int) -> RunLaw:
    """The law of the run that ``verifier`` accepts from ``drafter``, whose rounds have up to ``longest`` tokens.

    It follows from hazards (Kaplan and Meier 1958): of the rounds that came so far, each with its weight, how many go on. So the
    end of a text, and what cannot be told, is no end of a run; and where acceptances come in bursts, a run that is long
    already goes on more often. Behind the longest run that was seen the last hazard goes on.
    """
    depth = texts[0].chances.shape[1]
    gone, came = np.zeros(depth), np.zeros(depth)
    for text in texts:
        reached = text.weights(longest)
        for place in range(depth):
            chance = text.chances[:, place]
            known = ~np.isnan(chance)
            came[place] += reached[known].sum()
            reached = np.where(known, reached * np.nan_to_num(chance), 0.0)
            gone[place] += reached.sum()
    seen = came > 0
    hazards = np.divide(gone, came, out=np.zeros(depth), where=seen)
    if seen.any() and not seen.all():
        hazards[~seen] = hazards[seen][-1]
    reach = np.append(1.0, np.cumprod(np.clip(hazards, 0.0, 1.0)))
    law = np.append(reach[:-1] - reach[1:], reach[-1])
    return RunLaw(drafter, verifier, tuple((law / law.sum()).tolist()))


def mean_acceptance(texts: Sequence[Starts]) -> float:
    """Of first tokens of drafts from any place, the share that is accepted."""
    first = np.concatenate([text.chances[:, 0] for text in texts])
    first = first[~np.isnan(first)]
    return float(first.mean()) if len(first) else 0.0
