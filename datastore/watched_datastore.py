"""A datastore that follows newly published generations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from suffolk.datastore import _native
from suffolk.datastore.context_query import ContextQuery, OccurrenceQuery, Tokens
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Unavailable, Unsupported
from suffolk.datastore.generation_follower import GenerationFollower
from suffolk.datastore.manifest import Manifest
from suffolk.datastore.retriever import Match, Retriever


class WatchedDatastore(Retriever):
    """Answers from the latest generation of the datastore at ``path``, within a second after its publication.

    A thread opens a new generation and searches it once for the contexts of the last batch, to map the pages that callers need.
    Then it replaces one reference. Running calls finish in the old generation, which is freed after the last of these calls. A
    generation that cannot be opened, or has another vocabulary, tokenizer or order depth, is logged and not served. Thread-safe.
    """

    def __init__(self, path: str | Path, residency: str = "mmap", threads: int = 0) -> None:
        """The arguments and errors are those of ``open_datastore``."""
        self.path = Path(path)
        self._residency = residency
        self._threads = threads
        self._current: Datastore | None = open_datastore(self.path, residency, threads)
        self._replaced: Datastore | None = None
        self._last_contexts: Sequence[Tokens] = ()
        self._follower = GenerationFollower(self.path, lambda: self.generation, self._take_up)

    @property
    def current(self) -> Datastore:
        """The served generation. The returned object stays usable after it is replaced. Raises Unavailable after ``close``."""
        if self._current is None:
            raise Unavailable(f"the datastore {self.path} is closed; open it again")
        return self._current

    @property
    def generation(self) -> int:
        """Number of the generation that is served."""
        return self.current.manifest.generation

    @property
    def problem(self) -> str:
        """Why the published generation is not served; empty if it is."""
        return self._follower.problem

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def vocab_size(self) -> int:
        return self.current.vocab_size

    def find_matches(self, query: ContextQuery) -> list[Match]:
        self._last_contexts = query.contexts
        return super().find_matches(query)

    def find_drafts(self, query: ContextQuery) -> Sequence[DraftTree]:
        self._last_contexts = query.contexts
        return super().find_drafts(query)

    def count_documents(self, query: ContextQuery, most: int) -> list[int]:
        return self.current.count_documents(query, most)

    def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        return self.current.find_occurrences(query)

    def native(self) -> _native.Searched:
        return self.current.native()

    def tokenizer(self) -> Tokenizer | None:
        return self.current.tokenizer()

    def info(self) -> dict[str, Any]:
        return self.current.info()

    def resident_bytes(self) -> int | None:
        """See ``Datastore.resident_bytes``."""
        return self.current.resident_bytes()

    def refresh(self) -> bool:
        """Serve the published generation now if it is not served yet. The watching thread makes the same call.

        Returns:
            False if a further call has work to do: a new attempt, or freeing the replaced generation.

        Raises:
            Unavailable: the datastore is closed.
        """
        return self._follower.check()

    def close(self) -> None:
        """Stop watching, and close the current generation."""
        self._follower.close()
        if self._current is not None:
            self._current.close()
        self._current = self._replaced = None

    def _take_up(self, manifest: Manifest) -> bool:
        """See ``GenerationFollower``. One thread calls it at a time."""
        served = self.current
        self._replaced = None  # no call uses it now, so its files are unmapped in this thread and not in a caller's
        if manifest != served.manifest:
            self._require_fit(manifest)
            latest = open_datastore(self.path, self._residency, self._threads, served)
            self._require_fit(latest.manifest)  # a newer generation than ``manifest`` may have been opened
            latest.warm_up(self._last_contexts)
            self._replaced, self._current = served, latest
        return self._replaced is None

    def _require_fit(self, manifest: Manifest) -> None:
        served = self.current.manifest
        for field in ("vocab_size", "tokenizer", "order_depth"):
            if (new := getattr(manifest, field)) != getattr(served, field):
                raise Unsupported(
                    f"{self.path}: generation {manifest.generation} has {field} {new}, and callers rely on "
                    f"{getattr(served, field)}; restart this process to serve it"
                )
