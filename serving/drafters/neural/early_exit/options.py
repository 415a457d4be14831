"""The early exit's own options: a number of layers, or a trained exit."""

from __future__ import annotations

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.drafter_entry import DrafterEntry, Options
from suffolk.serving.drafters.neural.head_kind import take_head


def take(entry: DrafterEntry, options: Options) -> Options | None:
    """See ``DrafterEntry.take``. Raises as ``take_head``, and InvalidArgument for less than one layer."""
    taken = take_head(entry, options)
    layers = (taken or {}).get("exit_layers", 1)
    if layers < 1:
        raise InvalidArgument(f"exit_layers is {layers}; it must be 1 or more, and fewer than the model has")
    return taken
