"""Compares a datastore's folder with its copies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.manifest import SEGMENTS_NAME, read_manifest
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.serving.store.storage.generations import newest_number, read_generation


def require_equal(store: Path, copy: Path) -> None:
    """Compare manifests but for their numbers, and the bytes of all files. The copy has no other segments."""
    assert replace(read_manifest(copy), generation=1) == replace(read_manifest(store), generation=1)
    names = {entry.name for entry in read_manifest(store).files()}
    assert {path.name for path in (copy / SEGMENTS_NAME).iterdir()} == names
    for path in [*(store / SEGMENTS_NAME / name for name in names), *store.glob("tokenizer-*")]:
        assert (copy / path.relative_to(store)).read_bytes() == path.read_bytes()
    with open_datastore(copy) as datastore:
        datastore.verify("checksums")


def require_whole(url: str) -> int:
    """Compare the sizes of the newest generation's files at ``url``. Returns its number."""
    remote = RemoteFolder(url)
    manifest = read_generation(remote, newest_number(remote))
    sizes = remote.sizes(SEGMENTS_NAME)
    assert all(sizes[entry.name] == entry.bytes for entry in manifest.files())
    return manifest.generation
