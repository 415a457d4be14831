"""Whether a text is worth reading for a drafter that would have to: what drafts can save in the rest of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from suffolk.serving.drafters.hybrid.combined_gain import together
from suffolk.serving.drafters.neural.answer_lengths import AnswerLengths
from suffolk.serving.engine.loop.drafter import DraftRequest

_MARGIN = 1.5
"""Times what reading takes that drafts must save: which steps they pay in is known afterwards, and reading is paid for before."""
_RETRY = 20
"""After so many refusals a text is read all the same, so that a wrong opinion does not last for ever."""


class Saving(Protocol):
    """What drafts save, and what reading a text for them takes."""

    def saving(self, depth: int, request: DraftRequest, requests: int) -> float:
        """Tokens' time that drafts of up to ``depth`` tokens should save per token of the answer of ``request``, one of
        ``requests``, beside what others bring already; 0 if none pays."""
        ...

    def reading_seconds(self, tokens: int) -> float:
        """What reading a prompt of so many tokens should take."""
        ...


def share_saved(accepted: npt.ArrayLike, taken: npt.ArrayLike, already: Sequence[int] = ()) -> npt.NDArray[np.float64]:
    """float64[n], tokens' time that each of n drafts saves at most per token of an answer: it brings ``accepted`` tokens, float[n],
    for the time of ``taken``, were it asked in those steps alone in which that pays. ``already``: tokens that others brought, step
    by step; they come in bursts."""
    brought = np.array(already or [0], np.float64)
    own = np.atleast_1d(np.asarray(accepted, np.float64))[:, None]
    both = together(own, brought)
    after = np.append(brought[1:], brought.mean())
    saved = (both - brought) / (1 + after) - np.atleast_1d(np.asarray(taken, np.float64))[:, None]
    tokens = 1 + np.where(saved > 0, both, brought)
    return np.asarray(saved.clip(min=0).sum(1) / tokens.sum(1), np.float64)


class Prospect:
    """Weighs the reading of a prompt against the answer to come, as long as answers commonly are. Not thread-safe.

    Attributes:
        refused: texts that were not read when that was asked first.
    """

    def __init__(self, pay: Saving, depth: int) -> None:
        """``depth``: of the deepest drafts."""
        self.refused = self._refusals = 0
        self._pay, self._depth = pay, depth
        self._lengths = AnswerLengths()
        self._unread: set[int] = set()  # the requests that were refused
        self._read: set[int] = set()  # those that were not

    def learn(self, request_id: int, tokens: int) -> None:
        """The request's answer ended after so many tokens."""
        self._unread.discard(request_id)
        self._read.discard(request_id)
        self._lengths.add(tokens)

    def repays(self, request: DraftRequest, unread: int, requests: int) -> bool:
        """Whether to read ``unread`` tokens of a request, one of ``requests``; once yes, always yes. To be asked in each step, as
        what other drafts bring is known better by and by."""
        number = request.request_id
        if number not in self._read and self._wins(request, unread, requests):
            self._read.add(number)
        return number in self._read

    def _wins(self, request: DraftRequest, unread: int, requests: int) -> bool:
        """Whether reading should win its time back by a margin, or is to be tried again."""
        if not request.token_seconds:
            return True
        written = len(request.tokens) - request.prompt_tokens
        left = min(request.settings.max_new_tokens - written, self._lengths.left(written))
        saved = left * self._pay.saving(self._depth, request, requests)
        if saved * request.token_seconds >= _MARGIN * self._pay.reading_seconds(unread):
            return True
        if request.request_id in self._unread:
            return False
        self._refusals += 1
        if self._refusals % _RETRY == 0:
            return True
        self._unread.add(request.request_id)
        self.refused += 1
        return False
