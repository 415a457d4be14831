"""Recurrent draft heads for tests: random ones, and one trained on a tiny target's outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.neural.redrafter.config import BeamConfig, LossConfig, RedrafterConfig
from suffolk.serving.decoding.drafters.neural.redrafter.drafter import RedrafterDrafter
from suffolk.serving.decoding.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.decoding.drafters.neural.redrafter.training import TrainableRedrafterHead
from suffolk.serving.decoding.drafters.training.head import Batch
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, tree_of
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import alone
from tests.support.tiny_models import VOCAB, tiny_model

FREE = CostModel([1], [1e-12])


def random_head(
    target: Target, seed: int = 0, loss: LossConfig | None = None, **changes: Any
) -> TrainableRedrafterHead:
    """Random weights, in fp64 as the target."""
    shape = {"vocab_size": target.vocab_size, "hidden_size": 32, "exit_dim": 64, "blocks": 1} | changes
    torch.manual_seed(seed)
    return TrainableRedrafterHead(RedrafterConfig(**shape), target, loss=loss).eval()


def drafter_of(
    head: RedrafterHead, target: Target, width: int = 3, length: int = 4, costs: CostModel = FREE
) -> RedrafterDrafter:
    """Create a drafter whose steps cost nothing."""
    return RedrafterDrafter(head, target, 3, BeamConfig(width, length), costs)


def last_states(tokens: torch.Tensor, **changes: Any) -> torch.Tensor:
    """Return float[windows, n, 1, hidden], the input of an unmodified model's output layer."""
    with torch.no_grad():
        states = tiny_model(**changes)(tokens, output_hidden_states=True).hidden_states
    return states[-1][:, :, None]  # type: ignore[no-any-return]


def texts_of(target: Target, count: int, settings: SamplingSettings) -> Batch:
    """Return the target's answers to ``count`` prompts."""
    prompts = [[(seed + 5 * number) % VOCAB for number in range(6)] for seed in range(count)]
    tokens = torch.tensor([prompt + alone(target, prompt, settings) for prompt in prompts])
    counted = (torch.arange(tokens.shape[1]) >= 6).expand_as(tokens)
    return Batch(tokens, counted, last_states(tokens))


def train(head: TrainableRedrafterHead, batch: Batch, steps: int, rate: float = 0.01) -> TrainableRedrafterHead:
    """Train ``head`` for some steps on one batch."""
    optimizer = torch.optim.Adam(head.parameters(), rate)
    for _ in range(steps):
        optimizer.zero_grad()
        head.losses(batch).loss.backward()
        optimizer.step()
    return head


def request_for(tokens: list[int], max_nodes: int = 20, **settings: Any) -> DraftRequest:
    return DraftRequest(1, np.asarray(tokens, np.int32), max_nodes, len(tokens) - 1, SamplingSettings(**settings))


def follow(drafter: RedrafterDrafter, tokens: list[int], request_id: int = 1) -> None:
    drafter.follow(request_id, last_states(torch.tensor([tokens[:-1]]))[0])


def tree_behind(drafter: RedrafterDrafter, tokens: list[int], **options: Any) -> DraftTree:
    follow(drafter, tokens)
    [proposal] = drafter.propose([request_for(tokens, **options)])
    drafter.release(1)
    return tree_of(proposal)
