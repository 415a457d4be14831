"""The first layers of a model as a model of their own, which shares its weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from suffolk.datastore.errors import Unsupported
from suffolk.serving.engine.model.target import Target


def shallow(target: Target, layers: int, wrap: Callable[[nn.Module], nn.Module] | None = None) -> Target:
    """``target`` with its first ``layers`` alone: its final norm and output layer read the output of the last of them.

    Weights, configuration and attention are shared with the target, and the target's cache serves both.

    Args:
        layers: 1 up to all of the target's.
        wrap: replaces the last of them by another module with the same arguments.

    Raises:
        Unsupported: the model does not keep its layers in one list.
    """
    model = parent = _copy(target.model)
    *names, last = find_layers(target).split(".")
    for name in names:
        parent._modules[name] = child = _copy(getattr(parent, name))
        parent = child
    kept = list(getattr(parent, last))[:layers]
    if wrap is not None:
        kept[-1] = wrap(kept[-1])
    parent._modules[last] = nn.ModuleList(kept)
    return replace(
        target, name=f"{target.name}, {layers} layers", model=model, shapes=target.shapes[:layers], compiled=[]
    )


def find_layers(target: Target) -> str:
    """The name of the target's list of layers. Raises Unsupported if there is none."""
    found: list[str] = [
        name
        for name, module in target.model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == target.layers
    ]
    if not found:
        raise Unsupported(
            f"model {target.name}: its {target.layers} layers stand in no list, so that none can be left out"
        )
    return min(found, key=lambda name: str.count(name, "."))


def _copy(module: nn.Module) -> Any:
    """The module with the same parameters and submodules, to which others may be given."""
    shared = copy.copy(module)
    shared._modules = dict(module._modules)
    return shared
