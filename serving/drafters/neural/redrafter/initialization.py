"""First weights of a recurrent head: what a linear layer alone can tell of the tokens behind each draft."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from suffolk.serving.drafters.training.head import Batch
from suffolk.serving.drafters.training.least_squares import LeastSquares

if TYPE_CHECKING:
    from suffolk.serving.drafters.neural.redrafter.model import RedrafterHead

_MEMORY = 0.7
"""How much of a state goes into the next one, beside an embedding of size 1."""


@torch.no_grad()
def start_linear(head: RedrafterHead, batches: Iterator[Batch], depth: int) -> None:
    """Let states be random features of the drafted tokens, and blocks add nothing at first; the output layer gets the least squares
    from [h; s_t] to the target's hidden state from which the same token follows, over counted tokens up to ``depth`` ahead.

    A head whose blocks are of another width than [h; s_t] stays as it is.
    """
    if not isinstance(head.projection, torch.nn.Identity):
        return
    if head.config.recurrent:
        _scale_states(head)
    squares = LeastSquares()
    for batch in batches:
        _add(squares, head, batch, depth)
        if squares.enough:
            break
    for parameter in head.blocks.parameters():
        parameter.zero_()
    found = squares.solve()
    if head.config.output == "own":
        found = head.target_weight().to(found.dtype) @ found
    weight = head.output.weight
    assert isinstance(weight, torch.Tensor)
    weight[: len(found)].copy_(found[: len(weight)])


def _scale_states(head: RedrafterHead) -> None:
    width = head.config.hidden_size**0.5
    torch.nn.init.normal_(head.token_to_state.weight, 0.0, 1 / (head.embedding_spread() * width))
    torch.nn.init.normal_(head.state_to_state.weight, 0.0, _MEMORY / width)


def _add(squares: LeastSquares, head: RedrafterHead, batch: Batch, depth: int) -> None:
    tokens, features = batch.tokens, batch.features[:, :, 0]
    states = head.initial_state(tokens)
    for ahead in range(1, min(depth, tokens.shape[1] - 2) + 1):
        count = tokens.shape[1] - ahead - 1
        states = head.advance(states[:, :count], tokens[:, ahead : ahead + count])
        counted = batch.counted[:, ahead + 1 :]
        given = torch.cat([features[:, :count].to(states.dtype), states], -1)
        squares.add(given[counted], features[:, ahead : ahead + count][counted])
