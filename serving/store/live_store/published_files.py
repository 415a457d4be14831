"""The published generation of a live store: searches it beside the documents in memory, and publishes the next generation."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from pathlib import Path

from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.manifest import Manifest
from suffolk.serving.store.live_store.contents import live_pages
from suffolk.serving.store.live_store.identity import StoreIdentity, published
from suffolk.serving.store.live_store.publish import drop_published, live_segments, publish_live
from suffolk.serving.store.live_store.record import Change
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.writer import LiveWriter


class PublishedFiles:
    """The generation that the index of ``writer`` searches. Methods that change it need ``lock``.

    Attributes:
        lock: held while published files change, and while documents without a group are removed.
        datastore: the generation; None if nothing is published.
    """

    def __init__(self, path: Path, identity: StoreIdentity, settings: LiveSettings, writer: LiveWriter) -> None:
        self.lock = threading.Lock()
        self.datastore: Datastore | None = None
        self._path = path
        self._identity = identity
        self._settings = settings
        self._writer = writer

    @property
    def manifest(self) -> Manifest | None:
        """The manifest of the generation; None if there is no generation."""
        return self.datastore.manifest if self.datastore is not None else None

    @property
    def live_sequence(self) -> int:
        """See ``Manifest.live_sequence``."""
        return self.datastore.manifest.live_sequence if self.datastore is not None else 0

    @property
    def generation(self) -> int:
        """The number of the generation; 0 if there is none."""
        return self.datastore.manifest.generation if self.datastore is not None else 0

    def size(self) -> tuple[int, int]:
        """The tokens and documents of the generation, without deleted documents."""
        if self.datastore is None:
            return 0, 0
        live, deleted = self.datastore.manifest.segments, self.datastore.manifest.deletions
        return (
            sum(entry.tokens for entry in live) - sum(entry.tokens for entry in deleted),
            sum(entry.documents for entry in live) - sum(entry.documents for entry in deleted),
        )

    def live_tokens(self) -> int:
        """Tokens in ``live_segments``, including deleted documents; 0 if all documents of the generation are deleted."""
        return sum(entry.tokens for entry, _ in live_segments(self.manifest)) if self.size()[1] else 0

    def take_up(self) -> bool:
        """Take up the published generation if it is new, and return whether it is. REQUIRES: ``lock`` is held.

        Raises:
            Corruption, Unsupported: the new generation cannot be used; the old one stays.
        """
        manifest = published(self._path)
        if manifest is None or manifest.generation == self.generation:
            return False
        files = open_datastore(self._path, self._settings.residency, self._settings.threads)
        self._identity.require(files.manifest, self._path)
        deleted = list(files.deleted().values()) if files.manifest.deletions else []
        self._writer.index.rebase(*files.native_files(), deleted, files.manifest.live_sequence, grouped_stay=True)
        if self.datastore is not None and files.manifest.deletions != self.datastore.manifest.deletions:
            self._writer.removed_text.note_deleted()  # the log may hold what was published before it was deleted
        self.datastore = files
        return True

    def flush(self) -> int | None:
        """Publish the documents in memory that have no group. Returns the new generation, or None if there are none.

        REQUIRES: ``lock`` is held. Raises the errors of ``LiveStore.flush``.
        """
        self.take_up()  # raises if that fails; else a bad generation would be published again
        index, tokens = self._writer.index, 0
        if not any(True for _ in live_pages(index, self._writer.next_sequence, grouped=False, tokens=False)):
            return None

        def take() -> tuple[int, Iterator[Change]]:
            nonlocal tokens
            through, tokens = self._writer.begin_flush()
            failpoint("flush.rotated")
            return through, live_pages(index, through + 1, grouped=False)

        manifest = publish_live(self._path, self._identity, self._settings, take)
        try:
            failpoint("flush.published")
            self.take_up()
            failpoint("flush.searched")
        finally:
            self._writer.end_flush(tokens)
        return manifest.generation

    def drop(self, names: Collection[str]) -> None:
        """Publish a generation without the segments ``names``. REQUIRES: ``lock`` is held. Raises the errors of
        ``drop_published``."""
        drop_published(self._path, names, self._settings.threads)
        self.take_up()
