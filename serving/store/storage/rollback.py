"""Lists the generations at a URL, and makes an old one the newest again."""

from __future__ import annotations

from suffolk.datastore.errors import Corruption
from suffolk.datastore.manifest import Manifest
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.serving.store.storage.generations import (
    generation_numbers,
    missing_segments,
    newest_number,
    publish_generation,
    read_generation,
    read_kept,
    same_content,
)


def list_generations(url: str) -> list[Manifest]:
    """The generations at ``url``, the newest last.

    Raises:
        NotFound: there is none. Others as ``RemoteFolder`` and ``parse_manifest``.
    """
    remote = RemoteFolder(url)
    newest_number(remote)
    return read_kept(remote, generation_numbers(remote))


def roll_back(url: str, number: int) -> Manifest:
    """Publish the content of generation ``number`` again, as the newest generation. Nothing is removed.

    Returns:
        The new generation, or the newest one if it has that content already.

    Raises:
        NotFound: there is no such generation.
        Corruption: one of its segments is gone.
        Unavailable: another process published at the same time. Others as ``RemoteFolder``.
    """
    remote = RemoteFolder(url)
    newest = read_generation(remote, newest_number(remote))
    wanted = read_generation(remote, number)
    if same_content(newest, wanted):
        return newest
    if missing := missing_segments(remote, wanted):
        raise Corruption(f"{url}: generation {number} lacks segment {missing[0].name}; choose another generation")
    return publish_generation(remote, wanted, newest.generation + 1)
