"""Lines about a datastore that several commands print: reports of changes, documents that are not published, ids of documents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from suffolk.build_index.report import count
from suffolk.datastore.datastore import Datastore
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.errors import Corruption, Unsupported
from suffolk.datastore.files import printable
from suffolk.datastore.readers import reader_lines, wait_for_readers
from suffolk.serving.store.live_store.check_log import unpublished
from suffolk.serving.store.live_store.identity import has_log, log_folder

FORMS = "FILE of a text file, FILE:LINE of a record, or FILE#ID if the datastore was built with --id-field"


def change_report(facts: dict[str, Any], lines: Sequence[str], store: Path, changed: bool, as_json: bool) -> str:
    """The report as one JSON object, or as lines. If the datastore ``changed``, waits at most 3 s until the
    processes that have it open serve the new generation, and lists them.

    Args:
        facts: the values of the JSON object, with the datastore's ``generation``.
        lines: the same facts for people.
    """
    readers = wait_for_readers(store, facts["generation"]) if changed else []
    if as_json:
        return json.dumps(facts | {"readers": list(map(asdict, readers))})
    return "\n".join([*lines, *reader_lines(readers, facts["generation"])])


def unpublished_note(store: str | Path) -> str | None:
    """A line about the documents that only ``suffolk serve --live`` serves. None if there are no such documents."""
    if not has_log(Path(store)):
        return None
    try:
        documents, tokens = unpublished(Path(store))
    except (Corruption, Unsupported) as error:
        return f"the log cannot be read, so its documents are not counted: {error}"
    if not documents:
        return None
    return (
        f"{count(documents, 'document')} ({count(tokens, 'token')}) in {log_folder(Path(store))}; "
        f"'suffolk serve --live {store}' serves them too"
    )


def document_id(place: Occurrence) -> str:
    """The id and metadata of the document at ``place``."""
    described = ", ".join(f"{name}={value}" for name, value in dict(place.metadata).items())
    name = place.source or f"{place.segment} document {place.document} (without an id)"
    return printable(f"{name} ({described})" if described else name)


def example_id(store: Datastore) -> str | None:
    """The id of the first document that has an id."""
    return next((source for _, _, (source, _) in store.origins() if source is not None), None)


def whole_ids(store: Datastore, parts: Iterable[str]) -> dict[str, str]:
    """Map each part to the first document id that ends in '#', ':' or '/' and this part. Parts without an id are left out."""
    wanted, found = set(parts), dict[str, str]()
    for _, _, (source, _) in store.origins():
        for part in wanted - found.keys() if source is not None else ():
            if source is not None and source.endswith((f"#{part}", f":{part}", f"/{part}")):
                found[part] = source
    return found
