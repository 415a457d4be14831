"""Names that are no files here: whether the Hugging Face hub, or its cache on this machine, has what they name."""

from __future__ import annotations

from suffolk.datastore.errors import NotFound

TIMEOUT_S = 10.0


def is_path(name: str) -> bool:
    """Whether ``name`` can be a file's or folder's alone, and no hub name."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1


def cached_file(name: str, file: str) -> str | None:
    """Where the hub's cache on this machine has ``file`` of the model; None if it has it not."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, file)
    except HFValidationError:
        return None
    return found if isinstance(found, str) else None


def list_files(name: str) -> set[str]:
    """The files that the hub has of the model: asked once, for ``TIMEOUT_S`` at most.

    Raises:
        NotFound: the hub has no such model, or cannot be reached.
    """
    from huggingface_hub import HfApi

    try:
        return {entry.rfilename for entry in HfApi().model_info(name, timeout=TIMEOUT_S).siblings or ()}
    except Exception as error:  # the hub client lets its HTTP library's own errors through
        raise NotFound(
            f"{name}: no file or folder of that name, and the hub did not give it ({short_reason(error)})"
        ) from error


def short_reason(error: BaseException) -> str:
    """What ``error`` says, on one line and not too long."""
    return (" ".join(str(error).split()) or type(error).__name__)[:160]
