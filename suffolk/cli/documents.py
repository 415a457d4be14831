"""Ids of documents, as commands show and take them."""

from __future__ import annotations

from collections.abc import Iterable

from suffolk.datastore.datastore import Datastore
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.files import printable

FORMS = "FILE of a text file, FILE:LINE of a record, or FILE#ID if the datastore was built with --id-field"


def document_id(place: Occurrence) -> str:
    """The id of the document of ``place``, with its metadata."""
    described = ", ".join(f"{name}={value}" for name, value in dict(place.metadata).items())
    name = place.source or f"{place.segment} document {place.document} (without an id)"
    return printable(f"{name} ({described})" if described else name)


def example_id(store: Datastore) -> str | None:
    """The id of the first document that has an id."""
    return next((source for _, _, (source, _) in store.origins() if source is not None), None)


def whole_ids(store: Datastore, parts: Iterable[str]) -> dict[str, str]:
    """Part -> the first document id that ends in '#', ':' or '/' and this part; parts without one are left out."""
    wanted, found = set(parts), dict[str, str]()
    for _, _, (source, _) in store.origins():
        for part in wanted - found.keys() if source is not None else ():
            if source is not None and source.endswith((f"#{part}", f":{part}", f"/{part}")):
                found[part] = source
    return found
