"""Model names on the Hugging Face hub and in its local cache."""

from __future__ import annotations

from suffolk.datastore.errors import NotFound

TIMEOUT_S = 10.0


def is_path(name: str) -> bool:
    """Whether ``name`` can only be a path, not a hub name."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1


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
    """The names of the model's files on the hub: one request, of ``TIMEOUT_S`` seconds at most.

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


def short_reason(error: BaseException) -> str:
    """The message of ``error`` on one line of at most 160 characters."""
    return (" ".join(str(error).split()) or type(error).__name__)[:160]
