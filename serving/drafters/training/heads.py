"""The kinds of heads that can be trained, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.training.evaluation import evaluation_mode
from suffolk.serving.drafters.training.head import Batch, TrainableHead
from suffolk.serving.drafters.training.head_options import require_known
from suffolk.serving.engine.model.target import Target

HeadMaker = Callable[[Target, Mapping[str, Any]], TrainableHead]
"""(target, the head's options) -> a head with fresh weights on the target's device. It refuses unknown options, and imports what it
needs when it is called."""


def make_exit(target: Target, options: Mapping[str, Any]) -> TrainableHead:
    """An exit behind ``layers`` layers, by default half of them, with a block of ``width``, by default the target's hidden size."""
    from suffolk.serving.drafters.neural.early_exit.training import new_head

    require_known("early-exit", options)
    middle = max(1, target.layers // 2)
    return new_head(target, options.get("layers", middle), options.get("width", target.hidden_size))


def make_redrafter(target: Target, options: Mapping[str, Any]) -> TrainableHead:
    """A recurrent head with options of ``LossConfig`` and ``RedrafterConfig``; by default with the target's output layer."""
    from suffolk.serving.drafters.neural.redrafter.config import LossConfig, RedrafterConfig
    from suffolk.serving.drafters.neural.redrafter.training import TrainableRedrafterHead

    shape = ("exit_dim", "blocks", "initial_state", "output", "recurrent")
    require_known("redrafter", options)
    hidden = target.hidden_size
    chosen: dict[str, Any] = {"exit_dim": 2 * hidden, "output": "target"} | {
        name: options[name] for name in shape if name in options
    }
    config = RedrafterConfig(vocab_size=target.vocab_size, hidden_size=hidden, **chosen)
    loss = LossConfig(**{name: value for name, value in options.items() if name not in shape})
    dtype = torch.float64 if target.dtype == torch.float64 else torch.float32
    return TrainableRedrafterHead(config, target, dtype, loss)


def make_eagle(target: Target, options: Mapping[str, Any]) -> TrainableHead:
    """A head of EAGLE-1, shaped as the target's layers; ``noise``: on its features in training."""
    from suffolk.serving.drafters.neural.eagle.training import new_head

    require_known("eagle", options)
    return new_head(target, **options)


HEADS: dict[str, HeadMaker] = {"early-exit": make_exit, "redrafter": make_redrafter, "eagle": make_eagle}
"""Kind of head -> its maker. A new kind is one more line here, and one in ``HEAD_OPTIONS``."""

_PROBED_TOKENS = 128


def head_maker(name: str) -> HeadMaker:
    """The maker of a kind of head. Raises InvalidArgument for an unknown one."""
    if name not in HEADS:
        raise InvalidArgument(f"head {name!r} is unknown; use {', '.join(sorted(HEADS))}")
    return HEADS[name]


def draft_depth(head: TrainableHead, target: Target) -> int:
    """How many tokens ahead ``head`` drafts, from its losses on a batch of zeros."""
    shape = 1, _PROBED_TOKENS
    batch = Batch(
        torch.zeros(shape, dtype=torch.int64, device=target.device),
        torch.ones(shape, dtype=torch.bool, device=target.device),
        torch.zeros((*shape, len(head.layers), target.hidden_size), dtype=target.dtype, device=target.device),
    )
    with torch.no_grad(), evaluation_mode(head):
        return len(head.losses(batch).seen)
