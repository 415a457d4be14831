"""Predicts the rounds of a stack of levels along an answer of the target, from measurements at each place of the answer.

A plan assumes that rounds are independent. But tokens are accepted in bursts: a copied passage gives one long draft, other text
many short drafts. So the prediction for a given stack follows the answer, place by place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.benchmarks.hierarchy.agreement import Floats, Starts


@dataclass(frozen=True, slots=True)
class Calls:
    """The tokens that one level returns if it is called at each of n places.

    Attributes:
        lengths: float64[n, most + 1]; entry (p, m) is the probability of m tokens.
        seconds: float64[n], the expected time of the call.
    """

    lengths: Floats
    seconds: Floats


@dataclass(frozen=True, slots=True)
class Rounds:
    """One round of a level at each of n places: it calls the level below, and verifies its tokens in a pass.

    Attributes:
        gains: float64[n, most + 1]; entry (p, k) is the probability that the round gives k + 1 tokens.
        seconds: float64[n], the expected time of the round.
    """

    gains: Floats
    seconds: Floats


def bottom_calls(lengths: npt.NDArray[np.int64], seconds: float) -> Calls:
    """Return the calls of the lowest level, which drafts ``lengths[p]`` tokens at place p."""
    return Calls((lengths[:, None] == np.arange(lengths.max() + 1)).astype(np.float64), np.full(len(lengths), seconds))


def verify(calls: Calls, starts: Starts, pass_seconds: Floats) -> Rounds:
    """Return the rounds of a level that verifies the tokens of ``calls``. ``starts``: acceptance, float64[n, most or more].

    ``pass_seconds``: float64[most + 1]; entry m is the time of the level's pass over m tokens. Unknown acceptance is replaced by
    the mean of the known places.
    """
    size = calls.lengths.shape[1]
    chances = starts[:, : size - 1]
    known = ~np.isnan(chances)
    means = np.where(known, chances, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    reach = np.cumprod(np.where(known, chances, means), axis=1)
    drafted = np.cumsum(calls.lengths[:, ::-1], axis=1)[:, ::-1]
    more = drafted * np.concatenate([np.ones((len(reach), 1)), reach], axis=1)
    return Rounds(-np.diff(more, axis=1, append=0.0), calls.seconds + calls.lengths @ pass_seconds)


def repeat(rounds: Rounds, tokens: int) -> Calls:
    """Return the calls of a level that makes rounds until it has ``tokens`` tokens. After the answer, its last place repeats."""
    places, size = rounds.gains.shape
    lengths, seconds = np.zeros((places, tokens + size)), np.zeros(places)
    lengths[:, 0] = 1.0
    for gained in range(tokens):
        at = np.minimum(np.arange(places) + gained, places - 1)
        here = lengths[:, gained].copy()
        seconds += here * rounds.seconds[at]
        lengths[:, gained + 1 : gained + 1 + size] += here[:, None] * rounds.gains[at]
    lengths[:, :tokens] = 0.0
    return Calls(lengths, seconds)


def walk(rounds: Rounds) -> tuple[float, float]:
    """Return the target's expected passes and seconds until the end of the answer. The pass over the prompt and its token do not
    count."""
    places, size = rounds.gains.shape
    begun = np.zeros(places + size)
    begun[1] = 1.0
    for place in range(1, places):
        begun[place + 1 : place + 1 + size] += begun[place] * rounds.gains[place]
    return float(begun[:places].sum()), float(begun[:places] @ rounds.seconds)
