"""Finds and reads files at URLs as streams."""

from __future__ import annotations

import hashlib
import io
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.datastore.file_systems import file_system_at, open_file_system, storage_errors

READ_BYTES = 4 << 20
"""Bytes of one request."""
PATTERN = frozenset("*?[")
_HIDDEN = re.compile(r"/\.(?!\.?/)")
"""The start of a hidden file or folder. Folders may have the names '.' and '..' in an object store."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file at a URL. ``version`` (63 bits) changes with the file's content, as far as the store shows changes."""

    url: str
    size: int
    version: int


class FoundFiles(NamedTuple):
    """Files in the order of names.

    Attributes:
        named: whether the URL names the files, directly or by a pattern. False if it names their folder.
        hidden: number of files that are left out because their name, or the name of a folder, begins with a dot.
    """

    files: list[RemoteFile]
    named: bool
    hidden: int


def find_files(url: str) -> FoundFiles:
    """The files that ``url`` means.

    A URL of an existing file or folder is no pattern, even if it has ``*``, ``?`` or ``[``. A file and a folder may have the same
    name. In a folder, files and folders whose names begin with a dot are left out. Empty objects with a slash at the end, by which
    object stores show folders, are also left out.

    Raises:
        NotFound: there are no files. Other errors are those of ``open_file_system`` and ``storage_errors``.
    """
    files, path = _opened(url)
    with storage_errors(url):
        is_pattern = not PATTERN.isdisjoint(path) and not (files.isfile(path) or files.isdir(path))
        listed = _matching(files, path) if is_pattern else _listed(files, path)
        found = {name: facts for name, facts in listed.items() if not name.endswith("/") or facts["size"]}
        named = is_pattern or (len(found) == 1 and next(iter(found)).rstrip("/") == path.rstrip("/"))
        entries = [(name, facts) for name, facts in sorted(found.items()) if facts["type"] == "file"]
        shown = [each for each in entries if named or not _HIDDEN.search(each[0].removeprefix(path))]
        if not shown:
            raise NotFound(f"corpus {url}: there is no such file; check the URL, and quote patterns against the shell")
        listing = [_file(files.unstrip_protocol(name), facts) for name, facts in shown]
        return FoundFiles(listing, named, len(entries) - len(shown))


def _opened(url: str) -> tuple[Any, str]:
    """Like ``open_file_system``. The error for a name that is empty, '.' or '..' explains how to read files below it."""
    try:
        return open_file_system(url)
    except InvalidArgument as error:
        scheme, _, place = url.partition("://")
        above = re.match(r"(.+?)/\.{0,2}(?:/|$)", place.rstrip("/"))
        if not above:
            raise
        raise InvalidArgument(f"{error}, or {scheme}://{above[1]} if files have such names") from error


def _matching(files: Any, path: str) -> dict[str, Any]:
    """The files that the pattern ``path`` matches, with their facts. Folders are included if fsspec cannot leave them out."""
    found: dict[str, Any]
    try:
        found = files.glob(path, detail=True, withdirs=False)  # a folder would hide a file of the same name
    except TypeError:
        found = files.glob(path, detail=True)
    return found


def _listed(files: Any, path: str) -> dict[str, Any]:
    """The files below ``path``, and the file ``path``, with their facts. Only ``path`` if the store allows no listing."""
    found: dict[str, Any] = {}
    if "://" not in path:  # over HTTP, the page that lists files is not one of the files
        with suppress(OSError):
            if (facts := files.info(path))["type"] == "file":
                found[path] = facts
    try:
        found |= files.find(path, detail=True)
    except PermissionError:
        if not found:
            raise
    return found


def open_url(url: str) -> BinaryIO:
    """Open a file that ``find_files`` found, at its start. Opening and reading raise the errors of ``storage_errors``."""
    files, path = file_system_at(url)
    with storage_errors(url):
        return io.BufferedReader(_Stream(url, files.open(path, "rb", block_size=READ_BYTES)), READ_BYTES)


def read_head(url: str, size: int) -> bytes:
    """The first ``size`` bytes, or all, of a file that ``find_files`` found. Raises the errors of ``storage_errors``.

    Nothing is requested for no bytes, because S3 refuses parts of empty objects.
    """
    if not size:
        return b""
    files, path = file_system_at(url)
    with storage_errors(url):
        return bytes(files.cat_file(path, start=0, end=size))


class _Stream(io.RawIOBase):
    """An open file of fsspec, with the errors of ``storage_errors``."""

    def __init__(self, url: str, file: Any) -> None:
        self._url, self._file = url, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with storage_errors(self._url):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        self._file.close()
        super().close()


def _file(url: str, facts: dict[str, Any]) -> RemoteFile:
    digest = hashlib.blake2b(repr(sorted(facts.items(), key=str)).encode(), digest_size=8).digest()
    return RemoteFile(url, int(facts["size"]), int.from_bytes(digest, "little") >> 1)
