"""Parses one request's text by its grammar, and masks the tokens that may not come next."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from os.path import commonprefix
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.model.memory import to_device
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.sampling.grammar import Grammar
from suffolk.serving.decoding.engine.sampling.grammar_compiler import GrammarCompiler

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from suffolk.serving.decoding.engine.model.target import Target

log = logging.getLogger(__name__)

MOST_SECONDS = 0.05
"""The most seconds for the masks of one step. After this time, the drafted rows without a mask become all -inf, so that a hard
grammar does not delay other requests."""


class GrammarMatcher:
    """The state of one request's text in its grammar. Not thread-safe.

    Attributes:
        vocab_size: columns of the logits.
    """

    def __init__(self, new_parser: Callable[[], LLMatcher], vocab_size: int, grammar: Grammar) -> None:
        """``new_parser``: makes a parser of ``grammar`` for this vocabulary (``GrammarCompiler.compile``).

        Raises the errors of ``new_parser``.
        """
        self.vocab_size = vocab_size
        self._new_parser, self._grammar = new_parser, grammar
        self._parser = new_parser()
        self._text: list[int] = []
        self._warned = False

    @staticmethod
    def of(target: Target, grammar: Grammar | None) -> GrammarMatcher | None:
        """A matcher of ``grammar`` at the start of a text; None for None. Raises the errors of ``GrammarCompiler.compile``."""
        if grammar is None:
            return None
        return GrammarMatcher(partial(GrammarCompiler.of(target).compile, grammar), target.vocab_size, grammar)

    def is_complete(self, generated: npt.NDArray[np.int32]) -> bool:
        """Whether only the end of the text may follow ``generated``. REQUIRES: it extends the ``generated`` of the last call."""
        self._follow(generated)
        return bool(self._parser.is_stopped()) and not self._parser.is_error()

    def allowed(self, contexts: RowContexts) -> npt.NDArray[np.bool_]:
        """bool[rows], whether the grammar allows each row's drafted tokens.

        Raises:
            InvalidArgument: the grammar fails on the drafted tokens, or on the committed text.
        """
        found = np.zeros(len(contexts), np.bool_)
        self._follow(contexts.tokens[contexts.prompt_length :])
        for row in self._walk(contexts):
            found[row] = True
        return found

    def apply(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """``logits`` float[rows, vocab], changed in place: -inf for tokens that may not follow the row's text.

        A row becomes all -inf if the grammar forbids its drafted tokens, fails on them, or has no time left for them.

        Raises:
            InvalidArgument: the grammar fails on the committed text.
        """
        masks, failure = self._masks(contexts)
        if failure and not masks[0].any():
            masks, failure = self._masks(contexts)  # again, with a new parser
        if failure and not masks[0].any():
            raise failure
        if failure and not self._warned:
            log.warning("%s; continuing without that draft", failure)
            self._warned = True
        forbidden = np.unpackbits((~masks).view(np.uint8), axis=1, bitorder="little")[:, : self.vocab_size].view(
            np.bool_
        )
        return logits.masked_fill_(to_device(forbidden, logits.device), -torch.inf)

    def _masks(self, contexts: RowContexts) -> tuple[npt.NDArray[np.int32], InvalidArgument | None]:
        """int32[rows, vocab / 32], a bit for each token that may follow, 0 for rows not reached; and the error of a failed
        parser."""
        masks = np.zeros((len(contexts), (self.vocab_size + 31) // 32), np.int32)
        self._follow(contexts.tokens[contexts.prompt_length :])
        end = time.monotonic() + MOST_SECONDS
        try:
            for row in self._walk(contexts):
                self._parser.unsafe_compute_mask_ptr(masks[row].ctypes.data, masks[row].nbytes)
                if self._parser.is_error():
                    masks[row] = 0
                self._require_sound()
                if time.monotonic() > end:
                    break
        except InvalidArgument as error:
            return masks, error.with_traceback(None)  # frames would keep the step's memory until a garbage collection
        return masks, None

    def _walk(self, contexts: RowContexts) -> Iterator[int]:
        """Yields the rows whose drafted tokens are allowed, row 0 first. When a row is yielded, the parser has read the row's text.

        Rows come in the order of their paths. Neighbours then share most drafted tokens, so few tokens are parsed twice.
        """
        paths = [path[:depth] for path, depth in zip(contexts.paths.tolist(), contexts.depths.tolist(), strict=True)]
        held: list[int] = []
        try:
            for row in sorted(range(len(paths)), key=paths.__getitem__):
                path = paths[row]
                shared = len(commonprefix([held, path]))
                if shared < len(held):
                    self._parser.rollback(len(held) - shared)
                    del held[shared:]
                while len(held) < len(path) and self._parser.try_consume_tokens(path[len(held) : len(held) + 1]):
                    held.append(path[len(held)])
                self._require_sound()
                if len(held) == len(path):
                    yield row
        finally:
            if held and not self._parser.is_error():
                self._parser.rollback(len(held))

    def _follow(self, generated: npt.NDArray[np.int32]) -> None:
        """Parse the tokens that were not parsed before.

        A failed parser is replaced, because a new one has room for further states.
        """
        self._read(generated)
        if self._parser.is_error():
            self._parser, self._text = self._new_parser(), []
            self._read(generated)

    def _read(self, generated: npt.NDArray[np.int32]) -> None:
        fresh = generated[len(self._text) :].tolist()
        if fresh and not self._parser.is_stopped():
            self._parser.consume_tokens(fresh)  # a forbidden token is an error of the parser
        self._text += fresh

    def _require_sound(self) -> None:
        if self._parser.is_error():
            reason = str(self._parser.get_error()).partition("\n")[0]
            raise self._grammar.refusal(
                f"failed after {len(self._text)} tokens: {reason}; simplify the grammar or shorten the text", "grammar"
            )
