"""The first layers of a model as a model of their own, which shares its weights."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from torch import nn

from datastore.errors import InvalidArgument, Unsupported
from serving.decoding.target import Target


def shallow(target: Target, layers: int) -> Target:
    """``target`` without the layers behind the first ``layers``: its final norm and output layer read what leaves the last of them.

    Weights, configuration and attention are the target's own; its cache serves both: what the first layers cache is the same.

    Raises:
        InvalidArgument: ``layers`` is not 1..layers of the target.
        Unsupported: the model does not keep its layers in one list.
    """
    if not 1 <= layers <= target.layers:
        raise InvalidArgument(f"layers is {layers}; it must be between 1 and {target.layers}, the model's")
    path = _layer_list(target.model, target.layers)
    if path is None:
        raise Unsupported(f"model {target.name}: its {target.layers} layers stand in no list, so that none can be left out")
    model = parent = _copy(target.model)
    *names, last = path.split(".")
    for name in names:
        parent._modules[name] = child = _copy(getattr(parent, name))
        parent = child
    parent._modules[last] = nn.ModuleList(list(getattr(parent, last))[:layers])
    return replace(target, name=f"{target.name}, {layers} layers", model=model, compiled=[])


def _layer_list(model: nn.Module, layers: int) -> str | None:
    """The name of the outermost list of ``layers`` modules."""
    found = [name for name, module in model.named_modules() if isinstance(module, nn.ModuleList) and len(module) == layers]
    return min(found, key=lambda name: name.count("."), default=None)


def _copy(module: nn.Module) -> Any:
    """The module with the same parameters and submodules, to which others may be given."""
    shared = copy.copy(module)
    shared._modules = dict(module._modules)
    return shared
