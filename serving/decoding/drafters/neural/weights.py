"""Reads, checks and writes the weights of a draft head."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from suffolk.datastore.errors import Corruption, NotFound
from suffolk.serving.decoding.drafters.neural.head_folder import CONFIG

FILE = "model.safetensors"
DAMAGED = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
)
"""Errors of ``torch.load`` for damaged files."""
Tensors = dict[str, torch.Tensor]


def write_head(folder: Path, kind: str, config: Any, head: torch.nn.Module) -> None:
    """Write ``config`` to config.json and the weights to model.safetensors. Raises NotFound if ``folder`` does not exist."""
    if not folder.is_dir():
        raise NotFound(f"folder {folder} does not exist; make it first")
    (folder / CONFIG).write_text(json.dumps({"suffolk": kind} | asdict(config), indent=2) + "\n")
    save_file({name: each.detach().contiguous().cpu() for name, each in head.state_dict().items()}, folder / FILE)


def read_tensors(path: Path) -> Tensors:
    """All tensors of a safetensors file, on the CPU.

    Raises:
        NotFound: the file does not exist.
        Corruption: the file is damaged.
    """
    if not path.is_file():
        raise NotFound(f"{path} does not exist; a head needs its weights there")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise Corruption(f"{path}: its weights are damaged ({error}); fetch or train the head again") from error


def fit(tensors: Tensors, wanted: Mapping[str, torch.Tensor], names: Mapping[str, str] | None = None) -> Tensors:
    """Rename ``tensors`` to the names of ``wanted``, a head's ``state_dict``, and check them.

    ``names``: name in ``wanted`` -> name in ``tensors``; None if they are equal.

    Raises:
        Corruption: a tensor is missing, unexpected, of the wrong shape, or not finite.
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
