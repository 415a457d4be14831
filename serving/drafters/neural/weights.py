"""Reads and checks the weights of a draft head."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from suffolk.datastore.errors import Corruption, NotFound

FILE = "model.safetensors"
Tensors = dict[str, torch.Tensor]


def read_tensors(path: Path) -> Tensors:
    """All tensors of a safetensors file, on the CPU.

    Raises:
        NotFound: there is no such file.
        Corruption: it is damaged.
    """
    if not path.is_file():
        raise NotFound(f"{path} does not exist; a head needs its weights there")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise Corruption(f"{path}: its weights are damaged ({error}); fetch or train the head again") from error


def fit(tensors: Tensors, wanted: Mapping[str, torch.Tensor], names: Mapping[str, str] | None = None) -> Tensors:
    """Rename ``tensors`` to the names of ``wanted``, a head's ``state_dict``, and check their shapes.

    ``names``: the name of each in ``tensors``; None: the same.

    Raises:
        Corruption: one is missing, unexpected, of another shape than wanted, or has values that are not finite.
    """
    called = {name: name for name in wanted} if names is None else names
    for own, name in called.items():
        if name not in tensors:
            raise Corruption(f"tensor {name} is missing; its config.json asks for it, so fetch or train the head again")
        found, shape = list(tensors[name].shape), list(wanted[own].shape)
        if found != shape:
            raise Corruption(f"tensor {name} has shape {found}, its config.json says {shape}; fetch both again")
    for name in sorted(tensors.keys() - set(called.values())):
        raise Corruption(
            f"tensor {name} is unexpected; its config.json asks for none of that name, so fetch both again"
        )
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise Corruption(f"tensor {name} holds NaN or infinity; fetch or train the head again")
    return {own: tensors[name] for own, name in called.items()}
