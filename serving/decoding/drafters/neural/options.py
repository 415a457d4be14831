"""Selects and checks the options of neural drafters (``DrafterEntry.take``). Imports nothing large."""

from __future__ import annotations

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.drafters.drafter_entry import DrafterEntry, Options
from suffolk.serving.decoding.drafters.neural.head_kind import kind_of
from suffolk.serving.decoding.engine.model.model_folder import find_folder


def take_draft_model(entry: DrafterEntry, options: Options) -> Options | None:
    """The option of the draft model. Raises as ``find_folder``."""
    given = entry.given(options)
    if given is not None:
        find_folder(given["draft_model"])
    return given


def take_head(entry: DrafterEntry, options: Options) -> Options | None:
    """The options of ``entry``, with the head folder of its kind. Raises as ``kind_of``, and InvalidArgument if there are two."""
    given = dict(entry.given(options) or {})
    heads = [folder for folder in given.pop("head", ()) if kind_of(folder) == entry.name]
    if len(given) + len(heads) > 1:
        raise InvalidArgument(f"two drafters are {entry.name}; leave one of them out")
    return (given | {"head": heads} if heads else given) or None


def take_exit(entry: DrafterEntry, options: Options) -> Options | None:
    """A number of layers, or the folder of a trained exit. Raises as ``take_head``, and InvalidArgument for less than one layer."""
    taken = take_head(entry, options)
    layers = (taken or {}).get("exit_layers", 1)
    if layers < 1:
        raise InvalidArgument(Field("exit_layers"), f" is {layers}; it must be 1 or more, and fewer than the model has")
    return taken
