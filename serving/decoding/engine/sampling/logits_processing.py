"""Everything that changes the target's logits before sampling, in the order of transformers' ``generate``.

The committed text is the prompt and the generated tokens. A row's text is the committed text and the row's drafted tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.errors import Field, InvalidArgument, SuffolkError
from suffolk.serving.decoding.engine.model.memory import to_device
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.sampling.grammar_matcher import GrammarMatcher
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.engine.user_code_errors import USER_CODE_ERRORS, first_line


class UserFunctions:
    """The processors and the token mask of one request. Not thread-safe unless the user's functions are."""

    def __init__(self, settings: SamplingSettings) -> None:
        self._settings = settings

    def apply(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """``logits`` float[rows, vocab], changed in place. Each function is called once per depth.

        If a function fails for drafted tokens, their row becomes all -inf, because plain decoding might never reach that text.

        Raises:
            InvalidArgument: a function raised, or returned a wrong type or shape, for the committed text.
        """
        for rows, texts in contexts.levels():
            at = torch.from_numpy(rows).to(logits.device)
            logits[at] = self._level(
                torch.from_numpy(texts).to(logits.device), logits[at], drafted=contexts.depths[rows[0]] > 0
            )
        return logits

    def _level(self, texts: torch.Tensor, scores: torch.Tensor, drafted: bool) -> torch.Tensor:
        """``scores`` [k, vocab] after ``texts`` [k, n], as the functions change them."""
        try:
            return self._changed(texts, scores.clone())
        except InvalidArgument:
            if not drafted:
                raise
            if len(texts) == 1:
                return torch.full_like(scores, -torch.inf)
            parts = [self._level(texts[row : row + 1], scores[row : row + 1], drafted) for row in range(len(texts))]
            return torch.cat(parts)  # so a failure at one drafted text affects only its row

    def _changed(self, texts: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        name, shape, texts = "", scores.shape, texts.clone()  # the functions may change their arguments, even the sizes
        try:
            for number, processor in enumerate(self._settings.processors):
                name = f"processors[{number}] ({_name(processor)})"
                changed = _checked(name, processor(texts, scores), shape)
                if not changed.is_floating_point():
                    raise InvalidArgument(
                        Field(name), f" returned {changed.dtype}; it must return scores, floating-point numbers"
                    )
                scores = changed.to(scores)
            mask = self._settings.token_mask
            if mask is not None:
                name = f"token_mask ({_name(mask)})"
                allowed = _checked(name, mask(texts), shape)
                if allowed.dtype != torch.bool:
                    raise InvalidArgument(
                        Field(name), f" returned {allowed.dtype}; it must return bool, True for an allowed token"
                    )
                scores = scores.masked_fill(~allowed.to(scores.device), -torch.inf)
        except SuffolkError:
            raise
        except USER_CODE_ERRORS as error:
            raise InvalidArgument(Field(name), f" raised {first_line(error)}; mend it or leave it out") from error
        return scores


def _checked(name: str, result: object, shape: torch.Size) -> torch.Tensor:
    if not isinstance(result, torch.Tensor):
        raise InvalidArgument(Field(name), f" returned {type(result).__name__}; it must return a torch.Tensor")
    if result.layout is not torch.strided or result.is_meta:
        raise InvalidArgument(
            Field(name), " returned a tensor that is sparse or has no values; it must return a dense one with values"
        )
    if result.shape != shape:
        raise InvalidArgument(Field(name), f" returned shape {list(result.shape)}; it must be {list(shape)}")
    return result


def _name(function: object) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


_TOKEN = np.dtype(np.int64)


class LogitsProcessing:
    """Logit bias, penalties, bad words, min_tokens, processors, token mask and grammar of one request. Not thread-safe.

    The order is the same as in ``GenerationMixin._get_logits_processor``. transformers has no presence and frequency penalty;
    they are applied with the repetition penalty.
    """

    def __init__(
        self,
        settings: SamplingSettings,
        vocab_size: int,
        matcher: GrammarMatcher | None = None,
        ends: Collection[int] = (),
    ) -> None:
        """
        Args:
            matcher: the matcher of ``settings.grammar``.
            ends: the tokens that end the text, for ``settings.min_tokens``.

        Raises InvalidArgument if a token is not in the vocabulary.
        """
        held = settings.min_tokens > 0 and bool(ends)
        penalised = settings.repetition_penalty != 1.0 or settings.presence_penalty or settings.frequency_penalty
        functions = bool(settings.processors) or settings.token_mask is not None
        self.may_forbid = bool(settings.bad_words) or held or functions or matcher is not None
        """Whether a row may be left without any token."""
        self._parts: list[LogitBias | Penalties | BadWords | MinTokens | UserFunctions | GrammarMatcher] = []
        if settings.logit_bias:
            self._parts.append(LogitBias(settings.logit_bias, vocab_size))
        if penalised:
            self._parts.append(Penalties(settings, vocab_size))
        if settings.bad_words:
            self._parts.append(BadWords(settings.bad_words, vocab_size))
        if held:
            self._parts.append(MinTokens(settings.min_tokens, ends))
        if functions:
            self._parts.append(UserFunctions(settings))
        if matcher is not None:
            self._parts.append(matcher)

    def __bool__(self) -> bool:
        """Whether any setting changes logits."""
        return bool(self._parts)

    def apply(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """A changed copy of ``logits`` float[rows, vocab], in fp32, or in fp64 if ``logits`` is in fp64.

        Raises:
            InvalidArgument: a user's function or the grammar fails on the committed text.
        """
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
        for part in self._parts:
            logits = part.apply(logits, contexts)
        return logits


class LogitBias:
    """Adds a number to the logit of each of some tokens. Immutable; safe to share."""

    def __init__(self, biases: tuple[tuple[int, float], ...], vocab_size: int) -> None:
        """Raises InvalidArgument for a token id that is not in the vocabulary."""
        for token, _ in biases:
            if token >= vocab_size:
                raise InvalidArgument(
                    Field("logit_bias"), f" has token id {token}; the vocabulary has {vocab_size} ids"
                )
        self._tokens = np.array([token for token, _ in biases], np.int64)
        self._values = np.array([value for _, value in biases], np.float64)

    def apply(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """``logits`` float[rows, vocab], changed in place."""
        logits[:, to_device(self._tokens, logits.device)] += to_device(self._values, logits.device).to(logits.dtype)
        return logits


class Penalties:
    """The penalties of one request on tokens that occurred before. Not thread-safe.

    Repetition counts prompt and generated text; presence and frequency count only generated text.
    Committed tokens count for all rows, and drafted tokens only for the rows after them. Only the columns of tokens that occur
    are changed.
    """

    def __init__(self, settings: SamplingSettings, vocab_size: int) -> None:
        self._repetition = settings.repetition_penalty
        self._presence, self._frequency = settings.presence_penalty, settings.frequency_penalty
        self._length = 0
        self._seen = np.zeros(vocab_size, np.bool_)
        self._generated = np.zeros(vocab_size, np.int64)  # how often each token was generated
        self._distinct = np.empty(0, np.int64)  # the tokens of prompt and text

    def apply(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """``logits`` float[rows, vocab], changed in place. The committed text must extend the committed text of the call
        before."""
        self._count(contexts)
        tokens = to_device(self._distinct, logits.device)
        counts = to_device(self._generated[self._distinct], logits.device)
        drafted, drafted_counts = (to_device(array, logits.device) for array in self._on_paths(contexts))
        changed = self._penalised(logits.gather(1, drafted), drafted_counts)
        logits[:, tokens] = self._penalised(logits[:, tokens], counts)
        return logits.scatter_(1, drafted, changed)

    def _count(self, contexts: RowContexts) -> None:
        fresh = contexts.tokens[self._length :].astype(np.int64)
        generated = fresh[max(0, contexts.prompt_length - self._length) :]
        np.add.at(self._generated, generated, 1)
        fresh = np.unique(fresh[~self._seen[fresh]])
        self._seen[fresh] = True
        self._distinct = np.concatenate([self._distinct, fresh])
        self._length = len(contexts.tokens)

    def _on_paths(self, contexts: RowContexts) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Two int64[rows, deepest]: each row's drafted tokens, and how often the row's text has generated each of these tokens.

        Rows are padded with the last committed token, which is penalised anyway.
        """
        tokens = np.where(contexts.paths < 0, np.int64(contexts.tokens[-1]), contexts.paths)
        drafted = (contexts.paths[:, None, :] == tokens[:, :, None]).sum(-1)
        return tokens, self._generated[tokens] + drafted

    def _penalised(self, scores: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        scores = torch.where(scores < 0, scores * self._repetition, scores / self._repetition)
        return scores - counts.to(scores.dtype) * self._frequency - (counts > 0).to(scores.dtype) * self._presence


class BadWords:
    """Forbids the last token of a sequence if the text ends in the sequence's other tokens. Immutable; safe to share.

    Each row takes one table lookup for each length of a sequence, however many sequences there are.
    """

    def __init__(self, words: tuple[tuple[int, ...], ...], vocab_size: int) -> None:
        """Raises InvalidArgument for a token id that is not in the vocabulary."""
        self._last: defaultdict[bytes, list[int]] = defaultdict(list)  # by the tokens before the last one
        for number, word in enumerate(words):
            if max(word) >= vocab_size:
                raise InvalidArgument(Field("bad_words"), f"[{number}] is {word}; the vocabulary has {vocab_size} ids")
            self._last[np.array(word[:-1], _TOKEN).tobytes()].append(word[-1])
        self._last.default_factory = None
        self._sizes = sorted({len(beginning) for beginning in self._last})

    def apply(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """``logits`` float[rows, vocab], changed in place: -inf for tokens that would complete a sequence."""
        longest = self._sizes[-1]
        rows: list[int] = []
        forbidden: list[int] = []
        for row, tail in enumerate(contexts.tails(longest // _TOKEN.itemsize)):
            ending = tail.tobytes()
            for size in self._sizes:
                if tokens := self._last.get(ending[longest - size :]):
                    rows += [row] * len(tokens)
                    forbidden += tokens
        logits[
            torch.tensor(rows, device=logits.device).long(), torch.tensor(forbidden, device=logits.device).long()
        ] = -torch.inf
        return logits


class MinTokens:
    """Forbids the tokens that end a text while fewer than ``least`` tokens are generated. Immutable; safe to share."""

    def __init__(self, least: int, ends: Collection[int]) -> None:
        self._least, self._ends = least, np.array(sorted(ends), np.int64)

    def apply(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """``logits`` float[rows, vocab], changed in place: -inf for the ends of rows whose text is too short."""
        generated = len(contexts.tokens) - contexts.prompt_length + contexts.depths
        rows = np.flatnonzero(generated < self._least)
        if len(rows):
            logits[to_device(rows, logits.device)[:, None], to_device(self._ends, logits.device)] = -torch.inf
        return logits
