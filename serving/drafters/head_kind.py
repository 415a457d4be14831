"""What kind of head a folder holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from suffolk.datastore.errors import Corruption, NotFound, Unsupported
from suffolk.serving.drafters.neural.eagle.config import FORMAT as EAGLE
from suffolk.serving.drafters.neural.early_exit.config import KIND as EARLY_EXIT
from suffolk.serving.drafters.neural.redrafter.config import APPLE_TYPE
from suffolk.serving.drafters.neural.redrafter.config import FORMAT as REDRAFTER


def kind_of(folder: Path) -> str:
    """What the head in ``folder`` is: the name of its drafter. Folders of others that are no Apple ReDrafter are taken for EAGLE's,
    which have no mark of their own: its loader says what is wrong with them.

    Raises:
        NotFound: no config.json there.
        Corruption: it is no JSON object.
        Unsupported: one of ours, of no kind that is known, or a language model.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotFound(
            f"head {folder}: config.json cannot be read ({error.strerror}); name a trained head's folder"
        ) from error
    except (ValueError, RecursionError) as error:
        raise Corruption(f"{path} is no JSON: {error}; fetch or train the head again") from error
    if not isinstance(config, dict):
        raise Corruption(f"{path} is no JSON object; fetch or train the head again")
    if "suffolk" not in config:
        if _is_language_model(folder, config):
            raise Unsupported(f"head {folder}: it is a language model and no head; --draft-model takes it")
        return REDRAFTER if config.get("model_type") == APPLE_TYPE else EAGLE
    kind = config["suffolk"]
    if kind not in (EARLY_EXIT, REDRAFTER, EAGLE):
        raise Unsupported(f"head {folder}: its kind is {kind!r}; known are {EARLY_EXIT}, {REDRAFTER} and {EAGLE}")
    return str(kind)


def _is_language_model(folder: Path, config: dict[str, Any]) -> bool:
    """EAGLE heads too are configured as language models, but all have a layer that fuses their two inputs."""
    names = _tensor_names(folder)
    return "architectures" in config and bool(names) and not names & {"fc.weight", "fusion_fc.weight"}


def _tensor_names(folder: Path) -> set[str]:
    """Of the weights in ``folder``; none where they cannot be told without reading them, or at all."""
    try:
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        with safe_open(folder / "model.safetensors", "np") as file:
            return set(file.keys())
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return set()
