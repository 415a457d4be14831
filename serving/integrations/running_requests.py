"""Tracks the host's running requests and their known text. Requests are recognised by ids or by tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
_CHECKED = 16
"""For a request with an id: number of tokens before the new ones that must match its known text."""
_UNSEEN = 64
"""Steps after which an absent request without an id counts as ended."""
_ROOM = 256


@dataclass(frozen=True, slots=True)
class Context:
    """The text of one request in one step of the host.

    Attributes:
        tokens: int32[n], n >= 1: prompt and generated tokens so far, or only the last of these.
        key: the host's id of the request. Without an id (None) the request is recognised by its tokens, which must be
            the whole text.
        length: number of tokens of the whole text. None: ``len(tokens)``.
        prompt_tokens: length of the prompt; None: all tokens of the first context.
        sampled: whether the request's temperature is above 0.
    """

    tokens: Ids
    key: Hashable | None = None
    length: int | None = None
    prompt_tokens: int | None = None
    sampled: bool = False


class RunningRequest:
    """One request and its known text, which grows. Not thread-safe.

    Attributes:
        number: request number, unique in this process.
        length: number of tokens of the whole text. ``tokens`` holds the end of it.
        new: int32[k], the tokens of the last step; empty in the request's first step.
        drafts: whether to draft for it.
    """

    def __init__(self, number: int, context: Context, step: int) -> None:
        self.number, self.key, self.step, self.sampled = number, context.key, step, context.sampled
        self.length = context.length or len(context.tokens)
        self.prompt_tokens = self.length if context.prompt_tokens is None else context.prompt_tokens
        self._text = np.empty(len(context.tokens) + _ROOM, np.int32)
        self._size = 0
        self._append(context.tokens)
        self.new: Ids = self._text[:0]
        self.drafts = True

    @property
    def tokens(self) -> Ids:
        """int32[n], the known text, read-only."""
        text = self._text[: self._size]
        text.flags.writeable = False
        return text

    @property
    def answer(self) -> Ids:
        """int32[n], the generated tokens of the known text, read-only."""
        return self.tokens[max(0, self.prompt_tokens - (self.length - self._size)) :]

    def agrees(self, context: Context, checked: int) -> bool:
        """Whether ``context`` continues this text with one token or more.

        ``checked``: number of tokens to compare before the new ones.
        """
        more = (context.length or len(context.tokens)) - self.length
        known = context.tokens[: len(context.tokens) - more] if 0 < more <= len(context.tokens) else None
        if known is None:
            return False
        common = min(len(known), self._size, checked)
        return bool(np.array_equal(known[len(known) - common :], self._text[self._size - common : self._size]))

    def extend(self, context: Context, step: int) -> None:
        """Append the new tokens of ``context``. ``agrees`` must be true for it."""
        more = (context.length or len(context.tokens)) - self.length
        self._append(context.tokens[len(context.tokens) - more :])
        self.length, self.step, self.sampled = self.length + more, step, context.sampled
        self.new = self.tokens[self._size - more :]

    def _append(self, tokens: Ids) -> None:
        end = self._size + len(tokens)
        if end > len(self._text):
            self._text = np.concatenate([self._text[: self._size], np.empty(end + _ROOM, np.int32)])
        self._text[self._size : end] = tokens
        self._size = end


class RunningRequests:
    """All running requests. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[Hashable, RunningRequest] = {}
        self._nameless: list[RunningRequest] = []
        self._next = self._step = 0

    def update(self, contexts: Sequence[Context]) -> tuple[list[RunningRequest], list[RunningRequest]]:
        """Return the new or continued request of each context, and the ended requests.

        A request with an id ends if a context with this id does not continue its text. A request without an id ends after
        ``_UNSEEN`` steps in which it is absent.
        """
        self._step += 1
        ended: list[RunningRequest] = []
        found = [self._named(each, ended) if each.key is not None else self._recognised(each) for each in contexts]
        unseen = [each for each in self._nameless if self._step - each.step > _UNSEEN]
        self._nameless = [each for each in self._nameless if self._step - each.step <= _UNSEEN]
        return found, ended + unseen

    def pop(self, key: Hashable) -> RunningRequest | None:
        """Remove the request with an id, if there is one."""
        return self._known.pop(key, None)

    def clear(self) -> list[RunningRequest]:
        """Remove all requests, and return them."""
        removed = [*self._known.values(), *self._nameless]
        self._known, self._nameless = {}, []
        return removed

    def _named(self, context: Context, ended: list[RunningRequest]) -> RunningRequest:
        known = self._known.get(context.key)
        if known is not None and known.agrees(context, _CHECKED):
            known.extend(context, self._step)
            return known
        if known is not None:
            ended.append(known)
        self._known[context.key] = begun = self._begin(context)
        return begun

    def _recognised(self, context: Context) -> RunningRequest:
        """The request with the longest text that ``context`` continues.

        Requests with equal texts are interchangeable.
        """
        fitting = [
            each
            for each in self._nameless
            if each.step < self._step and each.agrees(context, _CHECKED) and each.agrees(context, len(context.tokens))
        ]
        if fitting:
            longest = max(fitting, key=lambda each: each.length)
            longest.extend(context, self._step)
            return longest
        begun = self._begin(context)
        self._nameless.append(begun)
        return begun

    def _begin(self, context: Context) -> RunningRequest:
        self._next += 1
        return RunningRequest(self._next, context, self._step)
