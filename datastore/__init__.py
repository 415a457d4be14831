"""The index as Python objects: open, look up, draft, verify."""

from datastore.context import ContextIndex
from datastore.datastore import Datastore, open_datastore
from datastore.documents import Document
from datastore.draft_tree import DraftTree, Source
from datastore.occurrence import Occurrence
from datastore.retriever import Match, Retriever
from datastore.version import __version__

__all__ = [
    "ContextIndex",
    "Datastore",
    "Document",
    "DraftTree",
    "Match",
    "Occurrence",
    "Retriever",
    "Source",
    "__version__",
    "open_datastore",
]
