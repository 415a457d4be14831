"""Decodes tokens to text as they come. Incomplete characters and possible stop strings are held back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

_BROKEN = "\ufffd"
_TRANSFORMERS = ["transformers.tokenization_utils_base", "transformers.tokenization_utils_tokenizers"]
"""Modules that define ``decode`` and ``_decode`` of plain tokenizers. These two methods only call the inner tokenizer."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the text. The text of a special token may be part of a stop string, and is not shown."""

    text: str
    source: int
    is_shown: bool = True


class TextStream:
    """Decodes one request's tokens: ``push`` each token, then ``finish`` once. Not thread-safe.

    Text comes as pieces (text, source bits of the token that completed it).

    Attributes:
        stopped: whether a stop string is complete; the text ends before it.
    """

    def __init__(
        self,
        tokenizer: Any,
        stop: Sequence[str] = (),
        min_tokens: int = 0,
        include_stop: bool = False,
        skip_special_tokens: bool = True,
    ) -> None:
        """
        Args:
            tokenizer: any object with a method ``decode(ids, skip_special_tokens)`` as in transformers.
            min_tokens: a stop string does not count if it is complete before this many tokens.
            include_stop: the text ends after the stop string.
            skip_special_tokens: special tokens are not shown.
        """
        self._text = _decoder(tokenizer, skip_special_tokens)
        self._stop = tuple(stop)
        self._min_tokens, self._include_stop = min_tokens, include_stop
        # special tokens decode to nothing
        self._silent = frozenset(getattr(tokenizer, "all_special_ids", ()) if skip_special_tokens else ())
        self._marks = _marks(tokenizer, self._stop) if skip_special_tokens else {}
        self._tokens: list[int] = []
        self._single: dict[int, str] = {}
        self._pushed = 0
        self._shown = 0  # tokens whose text was returned; decoding starts before them, for correct spaces
        self._start = 0
        self._held: list[_Piece] = []
        self.stopped = False

    def push(self, token: int, source: int = 0) -> list[tuple[str, int]]:
        """The text that is final after ``token``."""
        self._pushed += 1
        if token in self._marks:
            return self._release(_Piece(self._marks[token], source, is_shown=False), final=False)
        if token in self._silent:
            return []
        self._tokens.append(token)
        return self._release(_Piece(self._decode(final=False), source), final=False)

    def finish(self) -> list[tuple[str, int]]:
        """The text that was held back."""
        return [] if self.stopped else self._release(_Piece(self._decode(final=True), 0), final=True)

    def _decode(self, final: bool) -> str:
        before = self._before(self._tokens[self._start : self._shown])
        after = self._text(self._tokens[self._start :])
        if len(after) <= len(before) or (after.endswith(_BROKEN) and not final):
            return ""
        self._start, self._shown = self._shown, len(self._tokens)
        return after[len(before) :]

    def _before(self, tokens: list[int]) -> str:
        """The same as ``_text``. The texts of single tokens are kept, because most tokens are shown one by one."""
        if len(tokens) != 1:
            return self._text(tokens) if tokens else ""
        if tokens[0] not in self._single:
            self._single[tokens[0]] = self._text(tokens)
        return self._single[tokens[0]]

    def _release(self, piece: _Piece, final: bool) -> list[tuple[str, int]]:
        if not self._stop or self._pushed < self._min_tokens:
            return [(piece.text, piece.source)] if piece.text and piece.is_shown else []
        if piece.text:
            self._held.append(piece)
        held = "".join(piece.text for piece in self._held)
        found = [(at, stop) for at, stop in ((held.find(stop), stop) for stop in self._stop) if at >= 0]
        self.stopped = bool(found)
        if found:
            at, stop = min(found)
            return self._take(at + len(stop) if self._include_stop else at)
        return self._take(len(held) if final else len(held) - self._doubtful(held))

    def _doubtful(self, text: str) -> int:
        """Length of the longest suffix of ``text`` that begins a stop string."""
        longest = min(len(text), max(map(len, self._stop)) - 1)
        return next(
            (size for size in range(longest, 0, -1) if any(stop.startswith(text[-size:]) for stop in self._stop)), 0
        )

    def _take(self, length: int) -> list[tuple[str, int]]:
        pieces: list[tuple[str, int]] = []
        while self._held and length > 0:
            piece = self._held.pop(0)
            text = piece.text[:length]
            if len(piece.text) > length:
                self._held.insert(0, _Piece(piece.text[length:], piece.source, piece.is_shown))
            length -= len(text)
            if piece.is_shown:
                pieces.append((text, piece.source))
        return pieces


def _decoder(tokenizer: Any, skip_special_tokens: bool) -> Callable[[list[int]], str]:
    """Decodes tokens as ``tokenizer`` does.

    The methods of transformers take most of the time. If they do nothing but call the inner tokenizer, it is called directly.
    """
    methods = [getattr(type(tokenizer), name, None) for name in ("decode", "_decode")]
    if (
        [getattr(each, "__module__", "") for each in methods] == _TRANSFORMERS
        and not tokenizer.clean_up_tokenization_spaces
        and isinstance(tokenizer.backend_tokenizer, Tokenizer)
    ):
        inside = tokenizer.backend_tokenizer
        return lambda tokens: str(inside.decode(tokens, skip_special_tokens=skip_special_tokens))
    return lambda tokens: str(tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens))


def _marks(tokenizer: Any, stop: Sequence[str]) -> dict[int, str]:
    """Id -> text of every special token, if the text of one of them is a part of a stop string; otherwise empty."""
    added = getattr(tokenizer, "added_tokens_decoder", {}) if stop else {}
    found = {int(id): str(token) for id, token in added.items() if token.special and str(token)}
    return found if any(text in each for text in found.values() for each in stop) else {}
