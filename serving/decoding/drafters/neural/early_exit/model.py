"""The first layers of a target as a model, and the head after them: a residual block before the final norm and output layer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.drafters.neural.early_exit.config import KIND, ExitConfig
from suffolk.serving.decoding.drafters.neural.weights import write_head
from suffolk.serving.decoding.engine.model.target import Target

_NORMS = ("norm", "ln_f", "final_layer_norm", "final_layernorm")


class ExitHead(nn.Module):
    """x + W2 SiLU(W1 norm(x)), for the hidden states x after a layer. Before training, it is the identity."""

    def __init__(self, target: Target, config: ExitConfig) -> None:
        """Raises Unsupported if ``config`` is for another target, or if the target's output is not a norm and a linear layer."""
        super().__init__()
        _require_fit(config, target)
        self.config = config
        self.layers = (config.layers,)
        self.norm = nn.RMSNorm(config.hidden_size, 1e-6)
        self.inner = nn.Linear(config.hidden_size, config.width, bias=False)
        self.outer = nn.Linear(config.width, config.hidden_size, bias=False)
        nn.init.zeros_(self.outer.weight)
        # a tuple, so that they are not submodules
        self._behind = (
            _final_norm(target),
            target.model.get_output_embeddings(),
        )
        self.to(target.device, torch.float64 if target.dtype == torch.float64 else torch.float32)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Map ``hidden`` float[..., hidden size] to the same shape and dtype."""
        x = hidden.to(self.inner.weight.dtype)
        block: torch.Tensor = self.outer(F.silu(self.inner(self.norm(x))))
        return (x + block).to(hidden.dtype)

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors. Raises the errors of ``write_head``."""
        write_head(folder, KIND, self.config, self)


class ExitLayer(nn.Module):
    """A layer of the target with an exit after it. Other attributes are the layer's."""

    def __init__(self, layer: nn.Module, head: ExitHead) -> None:
        super().__init__()
        self.layer, self.head = layer, head

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("layer"), name)

    def forward(self, *args: Any, **options: Any) -> Any:
        output = self.layer(*args, **options)
        return (self.head(output[0]), *output[1:]) if isinstance(output, tuple) else self.head(output)


def _require_fit(config: ExitConfig, target: Target) -> None:
    wanted = (config.target_layers, config.hidden_size, config.vocab_size)
    found = (target.layers, target.hidden_size, target.vocab_size)
    if wanted != found:
        raise Unsupported(
            f"the exit is for a model of {wanted[0]} layers, hidden size {wanted[1]} and {wanted[2]} tokens; model {target.name} "
            f"has {found[0]}, {found[1]} and {found[2]}; use a head that was trained for this model"
        )


def _final_norm(target: Target) -> nn.Module:
    path = find_layers(target)
    parent = target.model.get_submodule(path.rpartition(".")[0])
    config = target.model.config.get_text_config(decoder=True)
    for name in _NORMS:
        norm = getattr(parent, name, None)
        if isinstance(norm, nn.Module) and not getattr(config, "final_logit_softcapping", None):
            return norm
    raise Unsupported(
        f"model {target.name}: no exit can be trained, because its output is not a norm and a linear layer"
    )


def shallow(target: Target, layers: int, wrap: Callable[[nn.Module], nn.Module] | None = None) -> Target:
    """A model of the first ``layers`` layers of ``target``, with the target's final norm and output layer.

    Weights, configuration and attention are the target's. The model can read and write a cache of the target.

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
