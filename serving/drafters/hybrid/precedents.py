"""How far retrieval gets in a request, step by step, by how far it got in those before."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from suffolk.serving.drafters.retrieval.retrieval_scorer import Ids

_REQUESTS, _TELLING = 32, 16
"""Requests that are remembered, and the steps that tell how far retrieval gets in one: its own, and those of others while it has
fewer. One lucky burst in its first steps otherwise kept a draft model out of a whole answer."""
_NOTHING = (0,) * 8
"""A request in which retrieval brought nothing, as there are always some."""
_HALF = 2.0
"""Tokens in which two prompts are alike less than two others are, that halve what the one request tells of the other."""
_MOST = 16
"""Of such tokens no more count, or a text that all ask about would outweigh how far retrieval gets in a request itself."""
_BEGINNING, _ENDING = 4096, 64
"""Tokens of beginnings and endings that are compared."""

Steps = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Precedent:
    begin: Ids
    end: Ids  # from the last token on backwards
    brought: Steps


class Precedents:
    """Remembers what retrieval brought the last requests. Those whose prompts begin and end alike, as prompts of one template do,
    tell most: where one asks to complete a function, the answer copies it. Not thread-safe."""

    def __init__(self) -> None:
        self._known: deque[_Precedent] = deque(maxlen=_REQUESTS)

    def add(self, prompt: Ids, brought: Sequence[int]) -> None:
        """Retrieval ``brought`` so many tokens in each step of a request with this ``prompt``, int32[n], which is copied."""
        begin, end = _ends(prompt)
        self._known.append(_Precedent(begin.copy(), end.copy(), tuple(brought)))

    def of(self, prompt: Ids) -> Outlook:
        """What those known now tell of a request with this ``prompt``, int32[n]."""
        if not self._known:
            return Outlook()
        begin, end = _ends(prompt)
        alike = np.array([_common(begin, each.begin) + _common(end, each.end) for each in self._known])
        telling = np.maximum(np.append(alike, alike.min()) - alike.max(), -_MOST) * math.log(2) / _HALF
        return Outlook((*(each.brought for each in self._known), _NOTHING), tuple(telling.tolist()))

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()


@dataclass(frozen=True, slots=True)
class Outlook:
    """What may come of a request: what retrieval brought others, step by step, and at last one in which it brought nothing; and the
    logarithm of how much each of them tells. Nothing where none is known."""

    others: tuple[Steps, ...] = ()
    telling: tuple[float, ...] = ()

    def steps(self, own: Sequence[int]) -> Steps:
        """What retrieval brings, step by step, in the request: its ``own`` steps, and while those are few, others', the more of
        such in which it brought about as much."""
        lacking = _TELLING - len(own)
        if lacking <= 0:
            return tuple(own)
        if not self.others:  # steps in which it brings nothing are the usual ones
            return (*own, *(0,) * (lacking // 2))
        steps = np.concatenate([np.asarray(other) for other in self.others])
        telling = np.array(
            [each + _likeness(own, other) for each, other in zip(self.telling, self.others, strict=True)]
        )
        weights = np.repeat(np.exp(telling - telling.max()), [len(other) for other in self.others])
        wanted = (np.arange(lacking) + 0.5) / lacking * weights.sum()
        return (*own, *steps[np.searchsorted(weights.cumsum(), wanted)].tolist())


def _ends(prompt: Ids) -> tuple[Ids, Ids]:
    """Its beginning, and its ending from the last token on backwards."""
    return prompt[:_BEGINNING], prompt[: -_ENDING - 1 : -1]


def _common(one: Ids, other: Ids) -> int:
    """With how many of the same tokens both begin."""
    size = min(len(one), len(other))
    different = np.flatnonzero(one[:size] != other[:size])
    return int(different[0]) if len(different) else size


def _likeness(own: Sequence[int], other: Sequence[int]) -> float:
    """The logarithm of how likely retrieval brings ``own``, step by step, in a request like that of ``other``: numbers of tokens
    fall off by a constant factor."""
    mean = (sum(other) + 0.5) / (len(other) + 1)
    return sum(own) * math.log(mean / (1 + mean)) - len(own) * math.log1p(mean)
