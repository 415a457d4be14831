"""Loads ReDrafter heads, and checks that they fit the target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from suffolk.datastore.errors import Corruption
from suffolk.datastore.files import expand
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.decoding.drafters.neural.head_check import check_fit
from suffolk.serving.decoding.drafters.neural.head_folder import CONFIG, naming, own_config, read_config
from suffolk.serving.decoding.drafters.neural.redrafter.config import KIND, RedrafterConfig
from suffolk.serving.decoding.drafters.neural.redrafter.drafter import RedrafterDrafter
from suffolk.serving.decoding.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.decoding.drafters.neural.weights import FILE, fit, read_tensors
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.model.memory import memory_guard
from suffolk.serving.decoding.engine.model.skinny_gemm import accelerate
from suffolk.serving.decoding.engine.model.target import Target

APPLE_TYPE = "recurrent_drafting_drafter"
_KEYS = {  # of Apple's config.json (ml-recurrent-drafter)
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "exit_dim": "exit_dim",
    "blocks": "num_draft_layers",
    "recurrent": "rnn",
}
_NAMES = {"token_to_state": "rnn_w", "state_to_state": "rnn_u", "projection": "input_proj"}


def load(context: LoadContext, options: Options) -> RedrafterDrafter:
    """Load the registry's drafter. Raises as ``load_redrafter``."""
    (folder,) = options["head"]
    drafter = load_redrafter(folder, context.require_target(), context.slots)
    context.calibrate(drafter, folder.name)
    return drafter


def load_redrafter(
    folder: str | Path,
    target: Target,
    slots: int = 8,
    costs: CostModel | None = None,
    check: bool = True,
) -> RedrafterDrafter:
    """Load a head of Suffolk's or Apple's format as a drafter, on the target's device and in its dtype.

    ``slots``: the engine's. ``check``: whether to run ``check_head``, which takes the time of about a hundred tokens. Raises as
    ``load_head`` and ``check_head``.
    """
    head = load_head(folder, target).eval()
    if check:
        check_head(head, target, str(folder))
    accelerate(head)
    head.compress()
    return RedrafterDrafter(head, target, slots, costs=costs)


def load_head(folder: str | Path, target: Target) -> RedrafterHead:
    """Load the head in ``folder``.

    Raises:
        NotFound: the folder or a file is missing.
        Corruption: a file is damaged; a tensor is missing, unexpected, of another shape, or not finite.
        Unsupported: the head is not a ReDrafter head, or its hidden size or vocabulary is not the target's.
        ResourceExhausted: out of memory.
    """
    path = expand(folder)
    with naming(path), memory_guard(f"head {path}"):
        values = read_config(path)
        is_apple = values.get("model_type") == APPLE_TYPE
        config = (
            apple_config(values, path / CONFIG)
            if is_apple
            else own_config(RedrafterConfig, KIND, values, path / CONFIG)
        )
        head = RedrafterHead(config, target)
        wanted = head.state_dict()
        names = {name: apple_name(name, config.blocks) if is_apple else name for name in wanted}
        head.load_state_dict(fit(read_tensors(path / FILE), wanted, names))
    return head


def check_head(head: RedrafterHead, target: Target, name: str) -> float:
    """The head's acceptance on a text that the target generates. Raises as ``check_fit``."""

    def predict(features: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        read = torch.cat([tokens[:1], tokens[:-1]])  # the first entry is a guess; its prediction does not count
        states = head.advance(head.initial_state(read), tokens)
        return head.logits(features[:, 0], states).argmax(-1)

    return check_fit(f"ReDrafter head {name}", target, head.layers, predict)


def apple_config(values: Mapping[str, Any], path: Path) -> RedrafterConfig:
    """The configuration of a head from ``values``, the config.json at ``path``. Raises Corruption as ``own_config``."""
    if missing := [key for key in _KEYS.values() if key not in values]:
        raise Corruption(f"{path}: {missing[0]} is missing; fetch the head again")
    named = {name: values[key] for name, key in _KEYS.items()}
    return own_config(RedrafterConfig, KIND, named | {"suffolk": KIND, "initial_state": "zero"}, path)


def apple_name(name: str, blocks: int) -> str:
    """Apple's name of the tensor ``name`` of a ``RedrafterHead`` with ``blocks`` blocks.

    Its heads have rnn_w, rnn_u and input_proj (if exit_dim is not twice the hidden size), lm_head.K.linear for each block K, and
    lm_head.N.weight, the output layer. The initial state is zero.
    """
    first, _, rest = name.partition(".")
    if first == "blocks":
        number, _, part = rest.partition(".")
        return f"lm_head.{number}.linear.{part}"
    return f"lm_head.{blocks}.{rest}" if first == "output" else f"{_NAMES[first]}.{rest}"
