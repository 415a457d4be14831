"""A folder of immutable files at a URL. A file appears whole, or not at all."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from suffolk.datastore.errors import Unavailable
from suffolk.datastore.file_systems import open_file_system, storage_errors
from suffolk.datastore.files import fsync_directory

COPY_BYTES = 4 << 20
UPLOAD_OPTIONS: dict[str, dict[str, int]] = {"s3": {"chunksize": 8 << 20, "max_concurrency": 4}}
"""Arguments of ``put_file`` that bound its memory, by the scheme of the file system."""

STALL_SECONDS = 600.0
"""An upload fails after this many seconds without progress. Some clients would wait forever on a lost connection."""
HEARTBEAT_SECONDS = 10.0
READERS = 8
"""Threads for file systems that have no asynchronous calls."""


class RemoteFolder:
    """The folder at ``url``. Names are relative to it. Thread-safe.

    Object stores publish an object when it is complete. For file://, a file is written under another name, synced, and then
    linked.

    Every method raises NotFound, PermissionDenied, ResourceExhausted, Unavailable or Unsupported, and names the URL.
    """

    def __init__(self, url: str) -> None:
        """Raises also InvalidArgument: ``url`` is no URL of storage."""
        self._files, self._root = open_file_system(url)
        self.url = url.rstrip("/")
        protocol = self._files.protocol
        schemes = (protocol,) if isinstance(protocol, str) else tuple(protocol)
        self._is_local = "file" in schemes
        self._readers = ThreadPoolExecutor(READERS)
        self._options = next((UPLOAD_OPTIONS[scheme] for scheme in schemes if scheme in UPLOAD_OPTIONS), {})

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Map names directly in ``folder`` to sizes in bytes. The size of a folder is -1. Empty if ``folder`` does not exist."""
        path = self._path(folder)
        with storage_errors(self.place(folder)):
            self._files.invalidate_cache()
            try:
                entries = self._files.ls(path, detail=True)
            except FileNotFoundError:
                return {}
        named = ((entry["name"].rstrip("/"), entry) for entry in entries)
        return {
            name.rpartition("/")[2]: int(entry["size"]) if entry["type"] == "file" else -1
            for name, entry in named
            if name != path.rstrip("/")  # some stores list a folder as an empty object in itself
        }

    def read(self, name: str) -> bytes:
        """The content of a small file."""
        with storage_errors(self.place(name)):
            return bytes(self._files.cat_file(self._path(name)))

    def begin_read(self, name: str, start: int, end: int) -> Future[bytes]:
        """Begin to read the bytes from ``start`` to ``end``, exclusive. ``end_read`` returns them."""
        path = self._path(name)
        if self._files.async_impl:
            return asyncio.run_coroutine_threadsafe(self._files._cat_file(path, start=start, end=end), self._files.loop)
        return self._readers.submit(self._files.cat_file, path, start=start, end=end)

    def end_read(self, name: str, size: int, reading: Future[bytes]) -> bytes:
        """The ``size`` bytes of ``begin_read``. Also raises Unavailable if fewer bytes arrive."""
        with storage_errors(self.place(name)):
            data = reading.result()
        if len(data) != size:
            raise Unavailable(f"{self.place(name)}: {len(data)} of {size} bytes arrived; run the command again")
        return data

    def upload(self, source: Path, name: str, report: Callable[[int], None]) -> None:
        """Write the file ``source`` to ``name``.

        Args:
            report: called with the number of further bytes, and with 0 while no bytes are sent. If it raises an error, the upload
                stops and raises this error.
        """
        with storage_errors(self.place(name)):
            if self._is_local:
                with open(source, "rb") as file, self._written(name, os.replace) as target:
                    while chunk := file.read(COPY_BYTES):
                        target.write(chunk)
                        report(len(chunk))
            else:
                try:
                    self._put(str(source), name, report)
                except FileNotFoundError:
                    # If the answer to the last request is lost, the client repeats the request, but the upload no longer exists.
                    if self._files.size(self._path(name)) != source.stat().st_size:
                        raise

    def create(self, name: str, content: bytes) -> bool:
        """Write ``content`` to ``name``. If the file exists, write nothing and return False.

        Of several callers, only one gets True. Stores without conditional writes are an exception: there all callers may get
        True, and the last write wins.
        """
        with storage_errors(self.place(name)), suppress(FileExistsError):
            if self._is_local:
                with self._written(name, os.link) as target:
                    target.write(content)
            else:
                self._files.pipe_file(self._path(name), content, mode="create")
            return True
        return False

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        with storage_errors(self.place(name)), suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def age(self, name: str) -> float:
        """Seconds since the file was written, by the clocks of the store and of this machine. 0 if the store has no time."""
        with storage_errors(self.place(name)), suppress(NotImplementedError, FileNotFoundError):
            return time.time() - float(self._files.modified(self._path(name)).timestamp())
        return 0.0

    def place(self, name: str = "") -> str:
        """The URL of a file, for messages."""
        return f"{self.url}/{name}" if name else self.url

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}" if name else self._root

    def _put(self, source: str, name: str, report: Callable[[int], None]) -> None:
        moved = time.monotonic()

        def count(size: int) -> None:
            nonlocal moved
            moved = time.monotonic()
            report(size)

        arguments: dict[str, Any] = {"callback": _reporting(count), **self._options}
        if not self._files.async_impl:
            self._files.put_file(source, self._path(name), **arguments)
            return
        upload = asyncio.run_coroutine_threadsafe(
            self._files._put_file(source, self._path(name), **arguments), self._files.loop
        )
        try:
            while not wait([upload], timeout=min(HEARTBEAT_SECONDS, STALL_SECONDS)).done:
                report(0)
                if time.monotonic() - moved > STALL_SECONDS:
                    raise Unavailable(
                        f"{self.place(name)}: nothing was sent for {STALL_SECONDS:.0f} s; check the network, and run the "
                        "command again"
                    )
            upload.result()
        finally:
            upload.cancel()

    @contextmanager
    def _written(self, name: str, publish: Callable[[str, str], None]) -> Iterator[BinaryIO]:
        """Yield a new file beside the local file ``name``. At the end, it is synced, and ``publish`` gives it that name."""
        folder, _, last = self._path(name).rpartition("/")
        os.makedirs(folder, exist_ok=True)
        path = f"{folder}/.{last}.{secrets.token_hex(4)}.tmp"
        try:
            with open(path, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            publish(path, self._path(name))
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)
        fsync_directory(Path(folder))


def _reporting(report: Callable[[int], None]) -> Any:
    """A callback of fsspec that calls ``report`` with the number of further bytes."""
    from fsspec.callbacks import Callback

    seen = 0

    def count(size: int | None, value: int, **named: object) -> None:
        nonlocal seen
        further, seen = value - seen, value
        report(further)

    return Callback(hooks={"bytes": count})
