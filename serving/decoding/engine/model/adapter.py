"""Merges a LoRA adapter into the weights of its model, so that passes take no longer than without the adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from suffolk.datastore.errors import Unsupported
from suffolk.datastore.hub import ADAPTER_FILE, short_reason

LORA = "LORA"


def require_lora(folder: Path) -> None:
    """Refuse an adapter that cannot be merged. Raises Unsupported: it is of another kind, or peft is not installed."""
    kind = json.loads((folder / ADAPTER_FILE).read_text(encoding="utf-8")).get("peft_type")
    if kind != LORA:
        raise Unsupported(f"model {folder}: its adapter is of kind {kind}; only LoRA adapters are merged")
    try:
        import peft  # noqa: F401  before the model is loaded, which takes long
    except ModuleNotFoundError as error:
        raise Unsupported(f"model {folder}: a LoRA adapter needs peft; pip install 'suffolk[lora]'") from error


def merge_adapter(model: Any, folder: Path) -> Any:
    """``model`` with the adapter in ``folder`` added to its weights.

    Raises:
        Unsupported: the adapter does not fit the model.
    """
    from peft import PeftModel

    try:
        return PeftModel.from_pretrained(model, str(folder)).merge_and_unload(safe_merge=True)
    except (ValueError, RuntimeError, KeyError, OSError) as error:
        raise Unsupported(
            f"model {folder}: its adapter does not fit {getattr(model, 'name_or_path', 'its model')} ({short_reason(error)})"
        ) from error
