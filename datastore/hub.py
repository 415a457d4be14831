"""Model names on the Hugging Face hub and in its local cache."""

from __future__ import annotations

import json
from pathlib import Path

from suffolk.datastore.errors import Corruption, NotFound
from suffolk.datastore.files import expand

ADAPTER_FILE = "adapter_config.json"
TIMEOUT_S = 10.0


def is_path(name: str) -> bool:
    """Whether ``name`` must be a path, because it cannot be a hub name."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1


def model_file(name_or_path: str | Path, file: str) -> Path | None:
    """The path of ``file`` of a model; None if it is missing. Searches a model on disk, or the hub and its local cache.

    If the folder of a LoRA adapter lacks the file, the adapter's base model is searched. Raises the errors of ``adapter_base``.
    """
    path = expand(name_or_path)
    if path.exists() or is_path(str(name_or_path)):
        folder = path if path.is_dir() else path.parent
        base = None if (folder / file).is_file() else adapter_base(folder)
        if base is not None:
            return model_file(base, file)
        return folder / file if (folder / file).is_file() else None
    name = str(name_or_path)
    try:
        if (cached := cached_file(name, file)) is not None:
            return Path(cached)
        return Path(download(name, file)) if file in list_files(name) else None
    except NotFound:
        return None


def adapter_base(folder: Path) -> str | None:
    """The folder or hub name of the model that the LoRA adapter in ``folder`` changes; None if there is no adapter.

    Raises:
        Corruption: its configuration cannot be read, or names no model.
    """
    path = folder / ADAPTER_FILE
    if not path.is_file():
        return None
    try:
        base = json.loads(path.read_text(encoding="utf-8-sig")).get("base_model_name_or_path")
    except (ValueError, AttributeError) as error:
        raise Corruption(f"{path}: not a JSON object ({short_reason(error)}); save the adapter again") from error
    if not isinstance(base, str) or not base or (expand(base).is_dir() and expand(base).samefile(folder)):
        raise Corruption(
            f"{path}: base_model_name_or_path is {base!r}; write the folder or hub name of the adapter's model"
        )
    return base


def download(name: str, file: str) -> str:
    """Fetch ``file`` of the model from the hub and return its path. Raises NotFound: the download failed."""
    from huggingface_hub import hf_hub_download

    try:
        return str(hf_hub_download(name, file))
    except Exception as error:  # the hub client does not wrap the errors of its HTTP library
        raise NotFound(f"{name}: the hub did not give {file} ({short_reason(error)})") from error


def cached_file(name: str, file: str) -> str | None:
    """The path of ``file`` of the model in the hub's local cache; None if it is not there."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, file)
    except HFValidationError:
        return None
    return found if isinstance(found, str) else None


def list_files(name: str) -> set[str]:
    """The names of the model's files on the hub, from one request that takes at most ``TIMEOUT_S`` seconds.

    Raises:
        NotFound: the hub does not have the model, or cannot be reached.
    """
    from huggingface_hub import HfApi

    try:
        return {entry.rfilename for entry in HfApi().model_info(name, timeout=TIMEOUT_S).siblings or ()}
    except Exception as error:  # the hub client does not wrap the errors of its HTTP library
        raise NotFound(
            f"{name}: no file or folder of that name, and the hub did not give it ({short_reason(error)})"
        ) from error


def short_reason(error: BaseException, most: int = 160) -> str:
    """The message of ``error`` on one line of at most ``most`` characters."""
    return (" ".join(str(error).split()) or type(error).__name__)[:most]
