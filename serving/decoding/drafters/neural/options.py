"""Selects and checks the options of neural drafters, and finds the drafter of a head. Imports nothing large."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from suffolk.datastore.errors import Field, InvalidArgument, Unsupported
from suffolk.serving.decoding.drafters.drafter_entry import DrafterEntry, Options
from suffolk.serving.decoding.drafters.neural.head_folder import read_config
from suffolk.serving.decoding.drafters.registry import known
from suffolk.serving.decoding.engine.model.model_folder import find_folder


def take_draft_model(entry: DrafterEntry, options: Options) -> Options | None:
    """The option of the draft model. Raises the errors of ``find_folder``."""
    given = entry.given(options)
    if given is not None:
        find_folder(given["draft_model"])
    return given


def take_head(entry: DrafterEntry, options: Options) -> Options | None:
    """The options of ``entry``, with the folder of a head for it. Raises the errors of ``kind_of``, and InvalidArgument if there
    are two."""
    given = dict(entry.given(options) or {})
    heads = [folder for folder in given.pop("head", ()) if kind_of(folder) == entry.name]
    if len(given) + len(heads) > 1:
        raise InvalidArgument(f"two drafters are {entry.name}; leave one of them out")
    return (given | {"head": heads} if heads else given) or None


def take_exit(entry: DrafterEntry, options: Options) -> Options | None:
    """A number of layers, or the folder of a trained exit. Raises the errors of ``take_head``, and InvalidArgument for less than
    one layer."""
    taken = take_head(entry, options)
    layers = (taken or {}).get("exit_layers", 1)
    if layers < 1:
        raise InvalidArgument(Field("exit_layers"), f" is {layers}; it must be 1 or more, and fewer than the model has")
    return taken


def kind_of(folder: Path) -> str:
    """The name of the drafter that runs the head in ``folder``.

    The config.json of a head that Suffolk trained names the drafter. Other heads go to the first drafter whose ``takes_head``
    accepts their config.json.

    Raises:
        NotFound, Corruption: config.json cannot be read.
        Unsupported: the named drafter is unknown, or the folder holds a language model.
    """
    config = read_config(folder)
    takers = {entry.name: entry.takes_head for entry in known() if entry.takes_head is not None}
    kind = config.get("suffolk")
    if "suffolk" in config and kind not in takers:
        *names, last = takers
        raise Unsupported(f"head {folder}: its kind is {kind!r}; known are {', '.join(names)} and {last}")
    if "suffolk" in config:
        return str(kind)
    if _is_language_model(folder, config):
        raise Unsupported(f"head {folder}: it is a language model and no head; --draft-model takes it")
    return next(name for name, takes in takers.items() if takes(config))


def _is_language_model(folder: Path, config: dict[str, Any]) -> bool:
    """Whether ``folder`` holds a language model. EAGLE heads have a similar config.json, and a layer that fuses two inputs."""
    names = _tensor_names(folder)
    return "architectures" in config and bool(names) and not names & {"fc.weight", "fusion_fc.weight"}


def _tensor_names(folder: Path) -> set[str]:
    """The names of the tensors in ``folder``; empty if no index and no safetensors header lists them."""
    from safetensors import SafetensorError, safe_open  # installed by the extra ``worker``

    try:
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        with safe_open(folder / "model.safetensors", "np") as file:
            return set(file.keys())
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return set()
