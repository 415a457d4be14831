"""The files of a build whose segments lie at a URL. They are sent when they are made, and published when all are there."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from suffolk.build_index.report import count
from suffolk.build_index.workspace import Workspace
from suffolk.datastore.errors import Corruption, InvalidArgument, Unavailable
from suffolk.datastore.files import write_atomically
from suffolk.datastore.manifest import (
    MANIFEST_NAME,
    SEGMENTS_NAME,
    TOKENIZER_PATTERN,
    Manifest,
    encode_manifest,
    tokenizer_name,
)
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.datastore.segment import SegmentEntry
from suffolk.serving.store.storage.fetch import fetch_tokenizer
from suffolk.serving.store.storage.generations import (
    generation_numbers,
    missing_segments,
    publish_generation,
    read_generation,
)


class RemoteWorkspace(Workspace):
    """The unfinished work of a build at a URL. On disk are the journal, and manifest and tokenizer of the newest generation."""

    keeps_segments = False

    def __init__(self, store: Path, remote: RemoteFolder) -> None:
        super().__init__(store)
        self.remote = remote

    def take_newest(self) -> None:
        """Put manifest and tokenizer of the newest generation at the URL in the folder.

        Raises:
            InvalidArgument: the folder holds a datastore. Others as ``read_generation``.
        """
        segments = self.store / SEGMENTS_NAME
        if segments.is_dir() and any(segments.iterdir()):
            raise InvalidArgument(
                f"work folder {self.store}: holds a datastore, and the segments of this build go to {self.remote.url} alone; name "
                "a new folder"
            )
        self.store.mkdir(parents=True, exist_ok=True)
        self.forget()
        if numbers := generation_numbers(self.remote):
            manifest = read_generation(self.remote, numbers[-1])
            self._keep(manifest, fetch_tokenizer(self.remote, manifest))

    def forget(self) -> None:
        """Remove what ``take_newest`` put in the folder."""
        for path in (self.store / MANIFEST_NAME, *self.store.glob(TOKENIZER_PATTERN)):
            path.unlink(missing_ok=True)

    def has_segment(self, entry: SegmentEntry) -> bool:
        """Whether the whole segment is at the URL."""
        return self._sizes.get(entry.name) == entry.bytes

    def require_whole(self, manifest: Manifest) -> None:
        """See ``Workspace``. Only the sizes of files at a URL are compared."""
        if missing := missing_segments(self.remote, manifest):
            raise Corruption(
                f"{self.remote.place(SEGMENTS_NAME)}/{missing[0].name} is missing or not whole; push the datastore again from a "
                "whole copy"
            )

    def publish(self, manifest: Manifest, tokenizer_json: str | None) -> None:
        """Make ``manifest`` the newest generation at the URL.

        Raises:
            Unavailable: another process published one since this build began, or removed segments.
        """
        newest = max(generation_numbers(self.remote), default=0)
        if newest != manifest.generation - 1:
            raise Unavailable(
                f"{self.remote.url}: another process published generation {newest} since this build began; run the command again "
                "to publish yours after it"
            )
        self._require_sent(manifest)
        self._keep(manifest, tokenizer_json)
        for path in self.store.glob(TOKENIZER_PATTERN):
            if self.remote.sizes().get(path.name) != path.stat().st_size:
                self.remote.upload(path, path.name, lambda size: None)
        publish_generation(self.remote, manifest, manifest.generation)
        self._require_sent(manifest)  # a push that ended meanwhile may have removed some

    def finish(self, manifest: Manifest) -> None:
        """Remove the journal."""
        self.discard()

    @cached_property
    def _sizes(self) -> dict[str, int]:
        return self.remote.sizes(SEGMENTS_NAME)

    def _require_sent(self, manifest: Manifest) -> None:
        if missing := missing_segments(self.remote, manifest):
            raise Unavailable(
                f"{self.remote.place(SEGMENTS_NAME)}: another process removed {count(len(missing), 'segment')} of this build; run "
                "the command again to make them again"
            )

    def _keep(self, manifest: Manifest, tokenizer_json: str | None) -> None:
        write_atomically(self.store / MANIFEST_NAME, encode_manifest(manifest))
        if manifest.tokenizer is not None and tokenizer_json is not None:
            write_atomically(self.store / tokenizer_name(manifest.tokenizer), tokenizer_json.encode())
