"""How likely the target held the tokens of a text, by its own logits before anything acts on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class LogProbability:
    """The natural logarithm of a token's probability, and what else was likely there.

    Attributes:
        token: the token of the text.
        value: its log-probability, 0 or less.
        alternatives: (token, log-probability) of the likeliest tokens, likeliest first; the text's own may be among them.
    """

    token: int
    value: float
    alternatives: tuple[tuple[int, float], ...]


def log_probabilities(logits: torch.Tensor, tokens: torch.Tensor, alternatives: int) -> list[LogProbability]:
    """One for each row of ``logits`` float[n, vocab], the target's own, with the text's token there: ``tokens`` int64[n]."""
    import torch  # here, because clients of a worker read log-probabilities and need no torch

    laws = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    own = laws.gather(1, tokens[:, None])[:, 0].tolist()
    best = laws.topk(min(alternatives, laws.shape[-1]), dim=-1)
    rows = zip(tokens.tolist(), own, best.indices.tolist(), best.values.tolist(), strict=True)
    return [LogProbability(token, value, tuple(zip(ids, values, strict=True))) for token, value, ids, values in rows]
