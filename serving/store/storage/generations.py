"""The generations of a datastore at a URL.

    URL/generations/000012.json     the manifest of generation 12; written last; the highest number is the newest
    URL/segments/NAME               immutable files
    URL/tokenizer-HEX.json          the tokenizer

The numbers count the publications at the URL. So they rise even if each push comes from a new folder.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, Unavailable, Unsupported
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.manifest import SEGMENTS_NAME, TOKENIZER_PATTERN, Manifest, encode_manifest, parse_manifest
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.datastore.segment import SegmentEntry

GENERATIONS_NAME = "generations"
_NAME = re.compile(r"(\d{6,})\.json")
FIXED_FIELDS = {"vocab_size": "vocabulary", "order_depth": "order depth", "tokenizer": "tokenizer"}
"""Fields that all generations at a URL share, and their names in messages. A running server cannot change these
fields."""
STRAY_SECONDS = 24 * 3600.0
"""Age at which segments that no generation names are removed. A younger segment may belong to a running push."""
_SEGMENT = re.compile(r"\.?g\d+-\d+\S*")
"""Names of segments, and of the unfinished files that a killed process leaves in file://."""


def generation_numbers(remote: RemoteFolder) -> list[int]:
    """The numbers of the generations at a URL, rising."""
    found = map(_NAME.fullmatch, remote.sizes(GENERATIONS_NAME))
    return sorted(int(match[1]) for match in found if match is not None)


def newest_number(remote: RemoteFolder) -> int:
    """The number of the newest generation.

    Raises:
        NotFound: there is none.
    """
    numbers = generation_numbers(remote)
    if not numbers:
        raise NotFound(
            f"{remote.url} holds no datastore: it has no {GENERATIONS_NAME}/; check the URL, or push a datastore there"
        )
    return numbers[-1]


def read_generation(remote: RemoteFolder, number: int) -> Manifest:
    """The manifest of a generation.

    Raises:
        NotFound: there is no such generation.
        Corruption, Unsupported: as ``parse_manifest``.
    """
    name = generation_name(number)
    try:
        raw = remote.read(name)
    except NotFound as error:
        there = ", ".join(map(str, generation_numbers(remote))) or "none"
        raise NotFound(f"{remote.url} has no generation {number}; it has {there}") from error
    manifest = parse_manifest(remote.place(name), raw)
    if manifest.generation != number:
        raise Corruption(f"{remote.place(name)} holds generation {manifest.generation}; push the datastore again")
    return manifest


def generation_name(number: int) -> str:
    """The name of the file of a generation."""
    return f"{GENERATIONS_NAME}/{number:06d}.json"


def publish_generation(remote: RemoteFolder, manifest: Manifest, number: int) -> Manifest:
    """Publish the content of ``manifest`` as generation ``number``, which must be the next number. All its segments must be
    there.

    Then the generation is listed and read back, because readers find it in this way.

    Raises:
        Unavailable: another process published a generation of that number meanwhile, or the store does not return it.
    """
    published = replace(manifest, generation=number)
    name, content = generation_name(number), encode_manifest(published)
    # a write is repeated if its answer was lost, and may then find its own file
    if not remote.create(name, content) and remote.read(name) != content:
        raise Unavailable(
            f"{remote.url}: another process published generation {number} at the same time; run the command again to publish "
            "yours after it"
        )
    if number not in generation_numbers(remote) or remote.read(name) != content:
        raise Unavailable(
            f"{remote.place(name)}: was written, but the store does not list it or returns other bytes, so readers cannot find "
            "it; check the URL, and what listings of the store show"
        )
    return published


def same_content(one: Manifest, other: Manifest) -> bool:
    """Whether two generations differ at most in their numbers."""
    return replace(one, generation=1) == replace(other, generation=1)


def missing_segments(remote: RemoteFolder, manifest: Manifest) -> list[SegmentEntry]:
    """The segments of ``manifest`` that are missing or incomplete at the URL."""
    sizes = remote.sizes(SEGMENTS_NAME)
    return [entry for entry in manifest.files() if sizes.get(entry.name) != entry.bytes]


def require_empty(remote: RemoteFolder) -> None:
    """Refuse a place that holds other files than segments and a tokenizer, which an interrupted first push leaves."""
    foreign = [name for name in remote.sizes() if name != SEGMENTS_NAME and not Path(name).match(TOKENIZER_PATTERN)]
    if foreign:
        raise InvalidArgument(f"{remote.url} holds {min(foreign)!r} and is no datastore; name a new or empty folder")


def require_same_kind(place: str, there: Manifest, given: Manifest) -> None:
    """Refuse a generation that a server of ``there`` could not change to.

    Raises:
        Unsupported: vocabulary, order depth or tokenizer differ.
    """
    for field, name in FIXED_FIELDS.items():
        old, new = getattr(there, field), getattr(given, field)
        if old != new:
            raise Unsupported(
                f"{place} holds a datastore with the {name} {old}, and the given one has {new}; servers cannot change it while "
                "they run, so use another place for it"
            )


def require_no_clash(place: str, kept: Collection[Manifest], given: Manifest) -> None:
    """Refuse segments that have the names of other segments. Names end in checksums, except names from early versions.

    Raises:
        InvalidArgument: a name is taken.
    """
    there = {entry.name: entry for manifest in kept for entry in manifest.files()}
    for entry in given.files():
        if there.get(entry.name, entry) != entry:
            raise InvalidArgument(
                f"{place} has another segment of the name {entry.name}: an early version gave it; use another place, or build the "
                "datastore again"
            )


def read_kept(remote: RemoteFolder, numbers: Sequence[int]) -> list[Manifest]:
    """The manifests of these generations, without generations that were removed since they were listed."""
    found = []
    for number in numbers:
        try:
            found.append(read_generation(remote, number))
        except NotFound:
            continue
    return found


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


def prune(remote: RemoteFolder, keep: int) -> int:
    """Remove all but the newest ``keep`` generations, and then segments that no kept generation names.

    Segments of the removed generations are removed immediately, other segments after STRAY_SECONDS. A copy that reads
    an old generation meanwhile misses a file, and takes the newest generation instead.

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
        return set()  # its segments are removed when they are old


def _is_stray(remote: RemoteFolder, name: str) -> bool:
    return _SEGMENT.fullmatch(name) is not None and remote.age(f"{SEGMENTS_NAME}/{name}") > STRAY_SECONDS
