"""Guarded calls of the user's processors and token mask."""

from __future__ import annotations

import torch

from suffolk.datastore.errors import Field, InvalidArgument, SuffolkError
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.engine.user_code_errors import USER_CODE_ERRORS, first_line


class UserFunctions:
    """The processors and the token mask of one request. Not thread-safe unless the user's functions are."""

    def __init__(self, settings: SamplingSettings) -> None:
        self._settings = settings

    def apply(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """``logits`` float[rows, vocab], changed in place, one call of each function per depth.

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
        """The functions' scores for ``scores`` [k, vocab] after ``texts`` [k, n]."""
        try:
            return self._changed(texts, scores.clone())
        except InvalidArgument:
            if not drafted:
                raise
            if len(texts) == 1:
                return torch.full_like(scores, -torch.inf)
            parts = [self._level(texts[row : row + 1], scores[row : row + 1], drafted) for row in range(len(texts))]
            return torch.cat(parts)  # one bad draft must not affect its neighbours

    def _changed(self, texts: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        name, shape, texts = "", scores.shape, texts.clone()  # the functions may change their arguments, sizes too
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
