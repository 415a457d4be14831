"""The draft model's own option."""

from __future__ import annotations

from suffolk.serving.drafters.drafter_entry import DrafterEntry, Options
from suffolk.serving.engine.model.model_folder import find_folder


def take(entry: DrafterEntry, options: Options) -> Options | None:
    """See ``DrafterEntry.take``. Raises as ``find_folder``."""
    given = entry.given(options)
    if given is not None:
        find_folder(given["draft_model"])
    return given
