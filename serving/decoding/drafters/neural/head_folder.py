"""Reads the config.json of a head. Imports nothing large."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from suffolk.datastore.errors import Corruption, InvalidArgument, SuffolkError, Unsupported
from suffolk.datastore.settings import from_json, read_object

CONFIG = "config.json"
T = TypeVar("T")


@contextmanager
def naming(folder: Path) -> Iterator[None]:
    """Name ``folder`` in the errors raised inside the block."""
    try:
        yield
    except SuffolkError as error:
        error.extend(f"head {folder}: ")
        raise


def read_config(folder: Path) -> dict[str, Any]:
    """The JSON object in config.json. Raises the errors of ``read_object``."""
    path = folder / CONFIG
    return read_object(path, str(path), "name a trained head's folder, or fetch or train the head again")


def own_config(kind: type[T], name: str, values: Mapping[str, Any], path: Path) -> T:
    """The dataclass ``kind`` from ``values``, the config.json at ``path`` of a head that Suffolk trained.

    Raises:
        Unsupported: the value of "suffolk" is not ``name``.
        Corruption: a key is missing or unknown, or a value is out of its range.
    """
    if values.get("suffolk") != name:
        raise Unsupported(f"{path}: suffolk is {values.get('suffolk')!r}; the head's kind must be {name!r}")
    try:
        return from_json(kind, {key: value for key, value in values.items() if key != "suffolk"}, str(path))
    except InvalidArgument as error:
        raise Corruption(f"{error}; fetch or train the head again") from error
