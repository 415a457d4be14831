"""Weights of a draft head from its folder, found to be whole."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from datastore.errors import Corruption, NotFound

FILE = "model.safetensors"


def load_weights(head: nn.Module, folder: Path) -> None:
    """Fill ``head`` with the tensors of the folder's model.safetensors.

    Raises:
        NotFound: there is no such file.
        Corruption: it is damaged, lacks a tensor or has another, or one has another shape or values that are no numbers.
    """
    path = folder / FILE
    if not path.is_file():
        raise NotFound(f"head {folder}: {FILE} is missing; name a trained head's folder")
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise Corruption(f"{path} is damaged ({error}); fetch or train it again") from error
    fill(head, tensors, str(path))


def fill(head: nn.Module, tensors: dict[str, torch.Tensor], source: str) -> None:
    """Fill ``head`` with ``tensors``, by name. Raises Corruption as ``load_weights``."""
    own = head.state_dict()
    for name in sorted(own.keys() | tensors.keys()):
        if name not in tensors:
            raise Corruption(f"{source}: tensor {name} is missing; the head is not whole")
        if name not in own:
            raise Corruption(f"{source}: tensor {name} belongs to no part of the head that its config describes")
        found, expected = tensors[name], own[name]
        if found.shape != expected.shape:
            raise Corruption(f"{source}: {name} has shape {list(found.shape)}; its config says {list(expected.shape)}")
        if found.is_floating_point() and not bool(found.isfinite().all()):
            raise Corruption(f"{source}: {name} has values that are no numbers (NaN or infinity); train the head again")
    head.load_state_dict(tensors)
