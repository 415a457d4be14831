"""Tells what a datastore's folder holds beside its published documents."""

from __future__ import annotations

from pathlib import Path

from suffolk.build_index.report import count
from suffolk.datastore.errors import Corruption, Unsupported
from suffolk.serving.store.live_store.check_log import unpublished
from suffolk.serving.store.live_store.identity import has_log, log_folder


def unpublished_note(store: str | Path) -> str | None:
    """A line on the documents that only ``suffolk serve --live`` serves; None if there are none."""
    if not has_log(Path(store)):
        return None
    try:
        found = unpublished(Path(store))
    except (Corruption, Unsupported) as error:
        return f"the log cannot be read, so its documents are not counted: {error}"
    if not found.documents:
        return None
    return (
        f"{count(found.documents, 'document')} ({count(found.tokens, 'token')}) in {log_folder(Path(store))}; "
        f"'suffolk serve --live {store}' serves them too"
    )
