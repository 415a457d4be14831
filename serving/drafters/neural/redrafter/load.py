"""A recurrent head by its folder, found to fit the target."""

from __future__ import annotations

from pathlib import Path

import torch

from suffolk.datastore.paths import expand
from suffolk.serving.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.drafters.neural.head_check import check_fit
from suffolk.serving.drafters.neural.head_folder import naming
from suffolk.serving.drafters.neural.redrafter.checkpoint import read_checkpoint
from suffolk.serving.drafters.neural.redrafter.config import BeamConfig
from suffolk.serving.drafters.neural.redrafter.drafter import RedrafterDrafter
from suffolk.serving.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.engine.model.memory import memory_guard
from suffolk.serving.engine.model.skinny_gemm import accelerate
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.policy.cost_model import CostModel


def load(context: LoadContext, options: Options) -> RedrafterDrafter:
    """The drafter of the registry. Raises as ``load_redrafter``."""
    (folder,) = options["head"]
    drafter = load_redrafter(folder, context.require_target(), context.slots)
    context.calibrate(drafter, folder.name)
    return drafter


def load_redrafter(
    folder: str | Path,
    target: Target,
    slots: int = 8,
    config: BeamConfig | None = None,
    costs: CostModel | None = None,
    canary: bool = True,
) -> RedrafterDrafter:
    """Load a head as the target's drafter, on its device and in its dtype; our format or Apple's (``checkpoint.py``).

    ``slots``: the engine's, see ``RedrafterDrafter``, which keeps no cache and so needs no capacity. ``canary``: whether to try the
    head on a text of the target's own; takes as long as some hundred tokens. Raises as ``load_head``, and Unsupported for a head
    that reads the target wrongly.
    """
    head = load_head(folder, target).eval()
    if canary:
        check_head(head, target, str(folder))
    accelerate(head)
    head.compress()
    return RedrafterDrafter(head, target, slots, config, costs)


def load_head(folder: str | Path, target: Target) -> RedrafterHead:
    """The head in ``folder``.

    Raises:
        NotFound: no such folder or file.
        Corruption: a file is damaged; a tensor is missing, unexpected, of another shape, or not finite.
        Unsupported: it is no recurrent head, or one of another hidden size or vocabulary than the target's.
        ResourceExhausted: no memory for it.
    """
    path = expand(folder)
    with naming(path), memory_guard(f"head {path}"):
        checkpoint = read_checkpoint(path)
        head = RedrafterHead(checkpoint.config, target)
        head.load_state_dict(checkpoint.fit(head.state_dict()))
    return head


def check_head(head: RedrafterHead, target: Target, name: str) -> float:
    """``check_fit`` for a head: its acceptance on a text of the target's own."""

    def predict(features: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        read = torch.cat(
            [tokens[:1], tokens[:-1]]
        )  # the text's first token is not told; its own prediction does not count
        states = head.advance(head.initial_state(read), tokens)
        return head.logits(features[:, 0], states).argmax(-1)

    return check_fit(f"ReDrafter head {name}", target, head.layers, predict)
