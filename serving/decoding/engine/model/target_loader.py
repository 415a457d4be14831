"""Load transformers models and their configurations, with errors that name the model and the next step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from suffolk.datastore.checks import check_choice
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, Unsupported
from suffolk.datastore.files import expand
from suffolk.datastore.hub import ADAPTER_FILE, adapter_base, cached_file, list_files, short_reason
from suffolk.serving.decoding.engine.model.memory import available_memory, cache_bytes, require_memory, weight_bytes
from suffolk.serving.decoding.engine.model.model_folder import find_folder
from suffolk.serving.decoding.engine.user_code_errors import message_line

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
QUANTIZATIONS = ("bitsandbytes", "torchao")
"""Quantization methods of transformers that were run with drafts and gave the text of ``generate``."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
LORA = "LORA"


def silence_transformers() -> None:
    """Turn off the notes and progress bars of transformers."""
    messages: Any = transformers_logging  # its functions have no types
    messages.disable_progress_bar()
    messages.set_verbosity_error()


def load_model(name: str, dtype: str, device: str, cache_tokens: int) -> tuple[Any, Any]:
    """The transformers model and tokenizer of a folder or hub name. The arguments and errors are those of ``Target.load``.

    The folder of a LoRA adapter gives its model with the adapter merged. The tokenizer comes from the adapter's folder, or else
    from the model's.
    """
    base = _adapted(name)
    if base is not None:
        adapter = expand(name)
        require_lora(adapter)
        model, tokenizer = load_model(base, dtype, device, cache_tokens)
        own = any((adapter / file).is_file() for file in TOKENIZER_FILES)
        return merge_adapter(model, adapter), _from_pretrained(AutoTokenizer, name) if own else tokenizer
    place, kind = _device(device), DTYPES.get(dtype)
    check_choice("dtype", dtype, ("auto", *DTYPES))
    folder, source = find_folder(name), _source(name)
    config = _from_pretrained(AutoConfig, name, **source)
    _require_quantization(name, config)
    if folder is not None:
        loaded = kind or getattr(config, "dtype", None)
        itemsize = (loaded or torch.float32).itemsize
        cached = min(cache_tokens, getattr(config, "max_position_embeddings", None) or cache_tokens)
        needed = weight_bytes(folder, loaded), cache_bytes(config, cached, itemsize)
        require_memory(name, *needed, available_memory(place), place)
    # if peft is installed, transformers searches for an adapter; only these options keep this search to local files
    options = {**source, "adapter_kwargs": dict(source)}
    tokenizer = _from_pretrained(AutoTokenizer, name, **source)  # before the weights, which take long
    return _from_pretrained(AutoModelForCausalLM, name, dtype=kind or "auto", **options).to(place), tokenizer


def read_context_length(name: str) -> int | None:
    """The ``context_length`` of the named model; reads only its config. Raises the errors of ``Target.load``."""
    name = _adapted(name) or name
    config = _from_pretrained(AutoConfig, name, **_source(name))
    return context_length(config.get_text_config(decoder=True))


def read_vocab_size(name: str) -> int:
    """The vocabulary size of the named model; reads only its config. Raises the errors of ``Target.load``."""
    name = _adapted(name) or name
    config = _from_pretrained(AutoConfig, name, **_source(name))
    return int(config.get_text_config(decoder=True).vocab_size)


def context_length(config: Any) -> int | None:
    """The tokens that a model with this text ``config`` takes; None if the config sets no limit.

    For ``longrope`` the short frequencies set the limit. Beyond this limit, the longest row of a pass selects the
    frequencies of all rows. Drafts and other requests would then change the text.
    """
    longest: int | None = getattr(config, "max_position_embeddings", None)
    ropes = getattr(config, "rope_parameters", None) or {}
    for rope in [ropes] if "rope_type" in ropes else ropes.values():
        if isinstance(rope, dict) and rope.get("rope_type") == "longrope":
            short = rope.get("original_max_position_embeddings") or getattr(
                config, "original_max_position_embeddings", None
            )
            longest = short if longest is None else min(longest, short or longest)
    return longest


def eos_ids(model: Any) -> frozenset[int]:
    """The tokens that end a text of ``model``."""
    settings = getattr(model, "generation_config", None)
    ids = getattr(settings, "eos_token_id", None)
    if ids is None:
        ids = getattr(model.config.get_text_config(decoder=True), "eos_token_id", None)
    return frozenset(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    usable = "auto, cpu or cuda" if torch.cuda.is_available() else "auto or cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:  # torch's message lists every device type that it knows
        raise InvalidArgument(f"device {name!r} is unknown; use {usable}") from error
    if device.type not in ("cpu", "cuda"):
        raise InvalidArgument(f"device {name!r} is of a kind that models do not run on here; use {usable}")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidArgument(f"device {name!r} cannot be used ({message_line(error)}); use {usable}") from error
    return device


def _require_quantization(name: str, config: Any) -> None:
    """Raises Unsupported: the weights are quantized by a method that Suffolk is not tested with."""
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return
    method = settings.get("quant_method") if isinstance(settings, dict) else getattr(settings, "quant_method", None)
    method = getattr(method, "value", method)
    if method not in QUANTIZATIONS:
        raise Unsupported(
            f"model {name}: its weights are quantized by {method}; use unquantized ones, or {' or '.join(QUANTIZATIONS)}"
        )


def _adapted(name: str) -> str | None:
    """The model that the LoRA adapter in folder ``name`` changes; None if ``name`` is no adapter."""
    folder = find_folder(name)
    return None if folder is None else adapter_base(folder)


def _source(name: str) -> dict[str, bool]:
    """Further arguments of ``from_pretrained``. Raises NotFound: the model is in no folder, not on the hub, and not in its cache.

    transformers retries an unreachable hub for every file. So this function asks the hub once and then reads only the cache.
    """
    if find_folder(name) is not None:
        return {}
    try:
        list_files(name)
    except NotFound as error:
        if cached_file(name, "config.json") is None:
            raise NotFound(f"model {error}; give the path of a folder in the Hugging Face layout") from error
        return {"local_files_only": True}
    return {}


def _from_pretrained(loader: Any, name: str, **options: Any) -> Any:
    path = expand(name)
    try:
        return loader.from_pretrained(str(path) if path.is_dir() else name, **options)
    except OSError as error:  # transformers raises it for any missing file
        raise NotFound(
            f"model {name}: {message_line(error)}; check the name and that all its files are there"
        ) from error
    except SafetensorError as error:
        raise Corruption(f"model {name}: its weights are damaged ({message_line(error)}); fetch them again") from error
    except (ValueError, KeyError, ImportError) as error:  # ImportError: a package that the weights need
        if loader is AutoTokenizer:
            raise NotFound(
                f"model {name}: transformers cannot load its tokenizer ({message_line(error)}); add tokenizer.json to the model's "
                "folder, or check that its tokenizer is whole"
            ) from error
        raise Unsupported(
            f"model {name}: transformers cannot load it as a causal LM ({message_line(error)})"
        ) from error


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
    """``model`` with the adapter in ``folder`` added to its weights. So passes take no longer.

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
