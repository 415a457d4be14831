"""Reads Apple's recurrent heads (ml-recurrent-drafter).

Their config.json is a transformers config with the keys below. Their tensors are:

- rnn_w.weight, rnn_u.weight and rnn_u.bias,
- input_proj.weight and input_proj.bias, if exit_dim is not twice the hidden size,
- lm_head.K.linear.weight and lm_head.K.linear.bias, for each of N blocks K,
- lm_head.N.weight, the output layer.

The initial state is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suffolk.datastore.errors import Corruption
from suffolk.serving.decoding.drafters.neural.head_folder import own_config
from suffolk.serving.decoding.drafters.neural.redrafter.config import KIND, RedrafterConfig

APPLE_TYPE = "recurrent_drafting_drafter"
_KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "exit_dim": "exit_dim",
    "blocks": "num_draft_layers",
    "recurrent": "rnn",
}
_NAMES = {"token_to_state": "rnn_w", "state_to_state": "rnn_u", "projection": "input_proj"}


def apple_config(values: Mapping[str, Any], path: Path) -> RedrafterConfig:
    """The configuration of a head from ``values``, the config.json at ``path``. Raises Corruption as ``own_config``."""
    if missing := [key for key in _KEYS.values() if key not in values]:
        raise Corruption(f"{path}: {missing[0]} is missing; fetch the head again")
    named = {name: values[key] for name, key in _KEYS.items()}
    return own_config(RedrafterConfig, KIND, named | {"suffolk": KIND, "initial_state": "zero"}, path)


def apple_name(name: str, blocks: int) -> str:
    """Apple's name of the tensor ``name`` of a ``RedrafterHead`` with ``blocks`` blocks."""
    first, _, rest = name.partition(".")
    if first == "blocks":
        number, _, part = rest.partition(".")
        return f"lm_head.{number}.linear.{part}"
    return f"lm_head.{blocks}.{rest}" if first == "output" else f"{_NAMES[first]}.{rest}"
