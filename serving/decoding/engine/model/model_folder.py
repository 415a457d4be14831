"""Find a model's folder before loading it."""

from __future__ import annotations

from pathlib import Path

from suffolk.datastore.errors import NotFound
from suffolk.datastore.files import expand
from suffolk.datastore.hub import ADAPTER_FILE, is_path


def find_folder(name: str) -> Path | None:
    """The model's folder if ``name`` is a path, None if it can be a hub name. Raises NotFound for a path without a model."""
    path = expand(name)
    if path.is_dir():
        if not (path / "config.json").is_file() and not (path / ADAPTER_FILE).is_file():
            raise NotFound(f"model folder {name}: it has no config.json; name a folder in the Hugging Face layout")
        return path
    if path.exists():
        raise NotFound(f"model {name} is a file, not a model folder; name a folder in the Hugging Face layout")
    if is_path(name):
        raise NotFound(f"model folder {name} does not exist; name a folder in the Hugging Face layout, or a hub name")
    return None
