"""Reads and writes recurrent heads: config.json and model.safetensors, ours or Apple's.

Ours: the keys of ``RedrafterConfig`` and ``"suffolk": "redrafter"``; tensors as ``RedrafterHead.state_dict`` names them. Apple's
(ml-recurrent-drafter): a transformers config of ``model_type`` recurrent_drafting_drafter with vocab_size, hidden_size, exit_dim,
num_draft_layers and rnn; num_lookback_tokens says nothing about the head and is not read. Its tensors are rnn_w.weight,
rnn_u.weight and .bias, input_proj.weight and .bias (where exit_dim is not twice the hidden size), lm_head.K.linear.weight and
.bias for each block K, and lm_head.N.weight, the output layer behind the N blocks; the state begins as zero.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, Unsupported
from suffolk.serving.drafters.neural.redrafter.config import APPLE_TYPE, FORMAT, RedrafterConfig
from suffolk.serving.drafters.neural.weights import FILE, fit, read_tensors

_CONFIG = "config.json"
_APPLE_KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "exit_dim": "exit_dim",
    "blocks": "num_draft_layers",
    "recurrent": "rnn",
}
_APPLE_NAMES = {"token_to_state": "rnn_w", "state_to_state": "rnn_u", "projection": "input_proj"}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of a head's folder.

    Attributes:
        config: the head's shape.
        tensors: on the CPU, named as in the file; ``apple``: whether they are Apple's.
    """

    config: RedrafterConfig
    tensors: dict[str, torch.Tensor]
    apple: bool

    def fit(self, wanted: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The tensors by the names of ``wanted``, a head's ``state_dict``. Raises as ``weights.fit``."""
        names = {name: _apple_name(name, self.config.blocks) if self.apple else name for name in wanted}
        return fit(self.tensors, wanted, names)


def write_checkpoint(folder: Path, config: RedrafterConfig, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a head in our format. Raises NotFound: there is no such folder."""
    if not folder.is_dir():
        raise NotFound(f"folder {folder} does not exist; make it first")
    (folder / _CONFIG).write_text(json.dumps(config.to_json(), indent=2) + "\n")
    save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, folder / FILE)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read the head in ``folder``.

    Raises:
        NotFound: no such folder or file.
        Corruption: a file is damaged, or a value of the configuration is missing, unknown or out of its range.
        Unsupported: the folder holds something else.
    """
    path = folder / _CONFIG
    values = _read_json(path)
    apple = values.get("model_type") == APPLE_TYPE
    if values.get("suffolk") != FORMAT and not apple:
        kind = values.get("suffolk") or values.get("model_type")
        raise Unsupported(
            f"{path}: it describes {kind!r}; a recurrent head has suffolk = {FORMAT!r} or model_type = {APPLE_TYPE!r}"
        )
    try:
        config = _apple_config(values) if apple else RedrafterConfig.from_json(values)
    except InvalidArgument as error:
        raise Corruption(f"{path}: {error}") from error
    return Checkpoint(config, read_tensors(folder / FILE), apple)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise NotFound(f"{path} cannot be read ({error.strerror}); name the folder of a recurrent head") from error
    except ValueError as error:
        raise Corruption(f"{path}: it is no JSON ({error}); write or fetch it again") from error
    if not isinstance(values, dict):
        raise Corruption(f"{path}: it holds a {type(values).__name__}, no object; write or fetch it again")
    return values


def _apple_config(values: Mapping[str, Any]) -> RedrafterConfig:
    for key in _APPLE_KEYS.values():
        if key not in values:
            raise InvalidArgument(f"{key} is missing; add it")
    return RedrafterConfig(**{name: values[key] for name, key in _APPLE_KEYS.items()}, initial_state="zero")


def _apple_name(name: str, blocks: int) -> str:
    first, _, rest = name.partition(".")
    if first == "blocks":
        number, _, part = rest.partition(".")
        return f"lm_head.{number}.linear.{part}"
    return f"lm_head.{blocks}.{rest}" if first == "output" else f"{_APPLE_NAMES[first]}.{rest}"
