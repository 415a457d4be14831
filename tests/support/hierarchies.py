"""Stacks of tiny levels for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from suffolk.serving.decoding.drafters.hierarchy.drafter import HierarchyDrafter
from suffolk.serving.decoding.drafters.hierarchy.model_level import ModelLevel
from suffolk.serving.decoding.drafters.hierarchy.recursion import StackedLevel
from suffolk.serving.decoding.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.decoding.drafters.neural.early_exit.model import shallow
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.drafters import Free
from tests.support.tiny_models import VOCAB, tiny_model

PROMPT = [(7 * number) % VOCAB for number in range(30)]
DEPTHS = (1, 2, 3, 4)


def noisy(noise: float, seed: int = 1, **changes: int) -> Target:
    """A tiny model with perturbed weights, which is often but not always correct."""
    model = tiny_model("llama", **changes)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += noise * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return Target.wrap(model)


def lookup(vocab_size: int, tokens: int = 3) -> RetrievalLevel:
    """Create the bottom level: prompt lookup."""
    return RetrievalLevel("prompt-lookup", [PromptLookupDrafter(vocab_size)], tokens)


def level(
    model: Target, tokens: int, slots: int = 8, capacity: int = 160, temperature: float | None = None
) -> ModelLevel:
    """Create a level whose passes cost nothing."""
    return ModelLevel(model.name, tokens, model, Free(), slots, capacity, temperature)


def hierarchy(
    depth: int,
    target: Target,
    draft: Target,
    slots: int = 8,
    capacity: int = 160,
    temperatures: tuple[float | None, float | None] = (None, None),
) -> HierarchyDrafter:
    """Create a hierarchy of four drafters: prompt lookup, early exits of the target and the draft model, the draft model.

    ``temperatures``: those of the first exit and the draft model.
    """
    room = {"slots": slots, "capacity": capacity}
    whole: list[StackedLevel] = [
        lookup(target.vocab_size),
        level(shallow(target, 1), 2, temperature=temperatures[0], **room),
        level(shallow(draft, 1), 3, **room),
        level(draft, 4, temperature=temperatures[1], **room),
    ]
    kept = {1: [3], 2: [0, 3], 3: [0, 1, 3], 4: [0, 1, 2, 3]}[depth]
    return HierarchyDrafter([whole[place] for place in kept], target.vocab_size, target.eos_ids, slots)


def request(number: int = 1, most_nodes: int = 8, **options: Any) -> DraftRequest:
    """Create a request with ``PROMPT`` and no generated token."""
    return DraftRequest(number, np.asarray(PROMPT, np.int32), most_nodes, len(PROMPT), **options)
