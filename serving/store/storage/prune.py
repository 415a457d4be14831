"""Removes old generations at a URL, and the segments that no kept one names."""

from __future__ import annotations

import re

from suffolk.datastore.errors import Corruption, Unsupported
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.manifest import SEGMENTS_NAME
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.serving.store.storage.generations import generation_name, generation_numbers, read_kept

STRAY_SECONDS = 24 * 3600.0
"""Age at which segments that no generation has named are removed. An interrupted push left them; a running one may need them."""
_SEGMENT = re.compile(r"\.?g\d+-\d+\S*")
"""Segments, and what a killed process leaves of them in file://."""


def prune(remote: RemoteFolder, keep: int) -> int:
    """Remove all but the newest ``keep`` generations, and then segments that no kept generation names.

    These are the segments of the removed generations, and other ones after STRAY_SECONDS. A copy that reads an old generation
    meanwhile misses a file, and takes the newest generation instead.

    Returns:
        The number of removed segments.

    Raises:
        SuffolkError: as ``read_generation`` for a kept generation. Nothing is removed then.
    """
    numbers = generation_numbers(remote)
    named = {entry.name for manifest in read_kept(remote, numbers[-keep:]) for entry in manifest.files()}
    dropped: set[str] = set()
    for number in numbers[:-keep]:
        dropped |= _names(remote, number)
        remote.remove(generation_name(number))
        failpoint("prune.generation")
    unnamed = sorted(remote.sizes(SEGMENTS_NAME).keys() - named)
    unused = [name for name in unnamed if name in dropped or _is_stray(remote, name)]
    for name in unused:
        remote.remove(f"{SEGMENTS_NAME}/{name}")
        failpoint("prune.segment")
    return len(unused)


def _names(remote: RemoteFolder, number: int) -> set[str]:
    try:
        return {entry.name for manifest in read_kept(remote, [number]) for entry in manifest.files()}
    except (Corruption, Unsupported):
        return set()  # its segments go when they are old


def _is_stray(remote: RemoteFolder, name: str) -> bool:
    return _SEGMENT.fullmatch(name) is not None and remote.age(f"{SEGMENTS_NAME}/{name}") > STRAY_SECONDS
