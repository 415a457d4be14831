"""Opens datastores, looks up tokens in them, drafts from them, and verifies them."""

from suffolk.datastore.context import ContextIndex
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.documents import Document
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.occurrence import Occurrence
from suffolk.datastore.retriever import Match, Retriever
from suffolk.datastore.version import __version__
from suffolk.datastore.watched_datastore import WatchedDatastore

__all__ = [
    "ContextIndex",
    "Datastore",
    "Document",
    "DraftTree",
    "Match",
    "Occurrence",
    "Retriever",
    "WatchedDatastore",
    "__version__",
    "open_datastore",
]
