"""Log-probabilities of a text's tokens, from the target's unprocessed logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class LogProbability:
    """The natural logarithm of a token's probability, and likely alternatives.

    Attributes:
        token: the token of the text.
        value: its log-probability, 0 or less.
        alternatives: (token, log-probability) of the likeliest tokens, likeliest first; may include ``token``.
    """

    token: int
    value: float
    alternatives: tuple[tuple[int, float], ...]


def log_probabilities(logits: torch.Tensor, tokens: torch.Tensor, alternatives: int) -> list[LogProbability]:
    """The log-probabilities of ``tokens`` int64[n]. ``logits``: float[n, vocab], the target's logits before each token."""
    import torch  # imported here, because clients of a worker read log-probabilities without torch

    distributions = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    generated = distributions.gather(1, tokens[:, None])[:, 0].tolist()
    best = distributions.topk(min(alternatives, distributions.shape[-1]), dim=-1)
    rows = zip(tokens.tolist(), generated, best.indices.tolist(), best.values.tolist(), strict=True)
    return [LogProbability(token, value, tuple(zip(ids, values, strict=True))) for token, value, ids, values in rows]
