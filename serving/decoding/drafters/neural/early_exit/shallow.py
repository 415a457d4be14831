"""Makes a model from the first layers of another, with shared weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.engine.model.target import Target


def shallow(target: Target, layers: int, wrap: Callable[[nn.Module], nn.Module] | None = None) -> Target:
    """A model of the first ``layers`` layers of ``target``, with the target's final norm and output layer.

    Weights, configuration and attention are the target's. Both models use the target's cache.

    Args:
        layers: 1 up to all of the target's.
        wrap: makes a module that replaces the last of these layers.

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
        target, name=f"{target.name}, {layers} layers", model=model, shapes=target.shapes[:layers], shared={}
    )


def find_layers(target: Target) -> str:
    """The name of the target's list of layers. Raises Unsupported if it has none."""
    found: list[str] = [
        name
        for name, module in target.model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == target.layers
    ]
    if not found:
        raise Unsupported(
            f"model {target.name}: its {target.layers} layers are not in one list, so none can be left out; use another drafter"
        )
    return min(found, key=lambda name: str.count(name, "."))


def _copy(module: nn.Module) -> Any:
    """A copy that shares parameters and submodules. Submodules can be replaced without changing the original."""
    shared = copy.copy(module)
    shared._modules = dict(module._modules)
    return shared
