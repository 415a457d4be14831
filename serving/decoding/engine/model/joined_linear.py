"""Linear layers that read the same input, such as queries, keys and values, become one matrix product of a graph.

``join_layers`` puts their weights in one array, once: each layer keeps its part as a view, so eager passes and state_dict are as
before. While torch compiles, each layer multiplies by the whole array and takes its part of the result. ``SharedProducts``
(``shared_products.py``) removes the repeated products from the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from suffolk.serving.decoding.engine.model.language_model import LanguageModel
from suffolk.serving.decoding.engine.model.tree_layout import chain


class JoinedLinear(torch.nn.Linear):
    """A ``torch.nn.Linear`` whose weights are a part of a larger array that further layers share."""

    joined: tuple[torch.Tensor, torch.Tensor | None]
    part: slice

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # torch's own name for it
        if not torch.compiler.is_compiling():
            return super().forward(input)
        return F.linear(input, *self.joined)[..., self.part]


def join_layers(target: LanguageModel) -> int:
    """Join the layers of ``target`` that read the same input, where this is possible. Returns the number of joined layers.

    No other thread may use the model. Only layers that are exactly ``torch.nn.Linear``, without hooks, qualify.
    """
    groups = _find_groups(target)
    for group in groups:
        _join(group)
    return sum(map(len, groups))


@torch.inference_mode(False)
@torch.no_grad()
def _join(layers: Sequence[torch.nn.Linear]) -> None:
    weight = torch.cat([layer.weight for layer in layers])
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    begin = 0
    for layer in layers:
        part = slice(begin, begin + layer.out_features)
        layer.weight.data = weight[part]
        if bias is not None:
            layer.bias.data = bias[part]
        layer.__class__ = JoinedLinear
        assert isinstance(layer, JoinedLinear)
        layer.joined, layer.part = (weight, bias), part
        begin = part.stop


def _find_groups(target: LanguageModel) -> list[list[torch.nn.Linear]]:
    """Layers of one module that read the same input in a pass over one token."""
    parents = {child: parent for parent in target.model.modules() for child in parent.children() if _is_plain(child)}
    inputs: dict[Any, torch.Tensor] = {}

    def note(layer: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        inputs[layer] = arguments[0]  # kept, so that no later tensor has the same id

    hooks = [layer.register_forward_pre_hook(note) for layer in parents]
    try:
        target.forward(target.new_cache(1, 1), [0], [chain(np.zeros(1, np.int64))], [1])
    finally:
        for hook in hooks:
            hook.remove()
    groups: dict[tuple[Any, ...], list[torch.nn.Linear]] = {}
    for layer, read in inputs.items():
        kind = (parents[layer], id(read), layer.in_features, layer.weight.dtype, layer.bias is None)
        groups.setdefault(kind, []).append(layer)
    return [group for group in groups.values() if len(group) > 1]


def _is_plain(layer: torch.nn.Module) -> bool:
    if type(layer) is not torch.nn.Linear or "forward" in vars(layer):
        return False
    return not (layer._forward_hooks or layer._forward_pre_hooks) and type(layer.weight) is torch.nn.Parameter
