"""Draws the target's own token at every node, exactly as plain decoding would draw it there."""

from __future__ import annotations

import torch

from serving.decoding.keyed_noise import KeyedNoise
from serving.decoding.settings import SamplingSettings

_NUCLEUS_GUESS = 1024
"""Most nuclei are smaller; a full sort of the vocabulary would cost more than a forward pass of a small target."""


class Sampler:
    """Turns logits into tokens for one request. The draw at a position depends on the seed, the position and the logits there,
    on nothing else. Not thread-safe."""

    def __init__(self, settings: SamplingSettings, vocab_size: int, device: torch.device) -> None:
        self._settings = settings
        self._noise = KeyedNoise(settings.seed, vocab_size, device) if settings.temperature > 0 else None

    def draw(
        self, logits: torch.Tensor, positions: list[int], row_positions: torch.Tensor | None = None
    ) -> torch.Tensor:
        """int64[n], the token drawn for each row of ``logits`` [n, vocab].

        ``positions`` are the distinct positions in the sequence of the tokens to be drawn; ``row_positions`` int64[n] tells
        which of them is each row's (None: the first, for all rows).
        """
        return self.scores(logits, positions, row_positions).argmax(-1)  # of equals, argmax returns the smallest id

    def scores(
        self, logits: torch.Tensor, positions: list[int], row_positions: torch.Tensor | None = None
    ) -> torch.Tensor:
        """What ``draw`` takes the argmax of: the logits when greedy, else float64 processed logits plus noise."""
        if self._noise is None:
            return logits
        processed = process(logits, self._settings)
        noise = self._noise.rows(positions)
        return processed.add_(noise if row_positions is None else noise[row_positions])


def process(logits: torch.Tensor, settings: SamplingSettings) -> torch.Tensor:
    """float64[n, vocab]: divided by the temperature, and -inf outside the top-k, then outside the top-p of what is left."""
    logits = logits.to(torch.float64) / settings.temperature
    if 0 < settings.top_k < logits.shape[-1]:
        least = logits.topk(settings.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if settings.top_p < 1.0:
        logits = logits.masked_fill(logits < _nucleus_floor(logits, settings.top_p), -torch.inf)
    return logits


def _nucleus_floor(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    """float64[n, 1], the smallest logit in each row's nucleus: the fewest likeliest tokens that hold ``top_p``."""
    total = logits.logsumexp(-1, keepdim=True)
    guess = min(_NUCLEUS_GUESS, logits.shape[-1])
    best = logits.topk(guess, dim=-1).values
    held = (best - total).exp().cumsum(-1)
    if guess < logits.shape[-1] and bool((held[:, -1] < top_p).any()):
        best = logits.sort(dim=-1, descending=True).values
        held = (best - total).exp().cumsum(-1)
    last = (held < top_p).sum(-1, keepdim=True).clamp_(max=best.shape[-1] - 1)
    return best.gather(-1, last)
