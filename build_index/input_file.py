"""Reads one file of a corpus, on disk or in storage, compressed or not."""

from __future__ import annotations

import bz2
import io
import logging
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from suffolk.build_index.block import BLOCK_BYTES
from suffolk.datastore.errors import Corruption, Field, InvalidArgument, NotFound
from suffolk.datastore.file_systems import is_storage_url
from suffolk.datastore.remote_files import open_url

TOKEN_KINDS = ("npy", "bin")
RECORD_KINDS = ("lines", "array", "parquet", "arrow")
KINDS = ("text", *RECORD_KINDS, *TOKEN_KINDS)
log = logging.getLogger(__name__)

MAGIC = {"gzip": b"\x1f\x8b", "zstandard": b"\x28\xb5\x2f\xfd", "bzip2": b"BZh", "xz": b"\xfd7zXZ\0"}
"""Name of a format -> first bytes of its files."""
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|.{0,5}(?:[^ -~]|\Z))", re.DOTALL)
"""First bytes of a bzip2 stream, perhaps an empty or damaged one. A text may begin with BZh."""
MAGIC_BYTES = 64
"""Number of bytes that show a file's format, even after a short skippable frame."""
SKIPPED_MAGIC = b"\x2a\x4d\x18"
"""Bytes 1 to 3 of a skippable frame of zstd. Byte 0 is 0x50 to 0x5f."""
ENDINGS = (".gz", ".zst", ".zstd", ".bz2", ".xz")
FRAME_BYTES = {"zstandard": 512, "gzip": 16 << 10, "xz": 2 << 10, "bzip2": 16 << 10}
"""Bytes of a stream that are read at a time, by format.

Unpacked, these bytes take at most about 16 MiB, because zstd, gzip and xz compress by factors of up to 32,000, 1,030 and 7,000.
bzip2 compresses by factors of up to a million, so it is unpacked in parts.
"""
MAX_WINDOW = 1 << 31
DAMAGE = (EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError)
_FRAMES: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "zstandard": lambda: zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj(),
    "xz": lzma.LZMADecompressor,
    "bzip2": bz2.BZ2Decompressor,
}
"""Format -> a new decompressor of one frame."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of a corpus.

    Attributes:
        path: path or URL.
        kind: one of KINDS.
        packing: a key of MAGIC; empty if the file is not compressed. For a file that is compressed twice, two keys with a plus sign
            between them, the outer first.
        size: bytes on disk.
        modified_ns: time of the last change; for a URL a number that changes with the file.
        named: whether the user gave this path. A named file must not be skipped.
    """

    path: str
    kind: str
    packing: str
    size: int
    modified_ns: int
    named: bool

    @property
    def is_small_text(self) -> bool:
        """Whether the file is a plain text that shares a block with other files."""
        return self.kind == "text" and not self.packing and self.size <= BLOCK_BYTES

    def open(self) -> BinaryIO:
        """The content, from its start. Raises OSError. For a URL, opening and reading raise SuffolkError."""
        return open_url(self.path) if is_storage_url(self.path) else open(self.path, "rb")


def require_spared(written: Path | None, files: Iterable[InputFile]) -> None:
    """Raise InvalidArgument if ``written``, the file for skipped records, is one of ``files``: it would be overwritten."""
    with suppress(FileNotFoundError):
        status = None if written is None else os.stat(written)
        if status and any(_has_status(file, status) for file in files):
            raise InvalidArgument(
                Field("skipped"), f": {written} is a file of the corpora, and would be overwritten; name another one"
            )


def _has_status(file: InputFile, status: os.stat_result) -> bool:
    """Whether ``file`` is the file with ``status``. The sizes are compared first, because corpora have very many
    files."""
    return (
        file.size == status.st_size and not is_storage_url(file.path) and os.path.samestat(os.stat(file.path), status)
    )


def read_start(path: str, size: int) -> bytes:
    """The first ``size`` bytes of a file on disk, or all bytes if it has fewer. Raises OSError."""
    with open(path, "rb") as file:
        return file.read(size)


def find_packing(head: bytes) -> str:
    """The format of a compressed file, by its first bytes; empty if it is not compressed."""
    start = _behind_skipped(head)
    found = next((name for name, magic in MAGIC.items() if start.startswith(magic)), "")
    return "" if found == "bzip2" and not _BZIP2.match(start) else found


def _behind_skipped(head: bytes) -> bytes:
    """``head`` without the skippable frames at its start. ``pzstd`` writes one before each frame."""
    while _is_skipped(head):
        head = head[8 + int.from_bytes(head[4:8], "little") :]
    return head


def _is_skipped(head: bytes) -> bool:
    return head[1:4] == SKIPPED_MAGIC and head[0] >> 4 == 5


def without_ending(name: str) -> str:
    """The name of a file in lower case, without the endings of compressed files."""
    name = name.lower()
    while ending := next((ending for ending in ENDINGS if name.endswith(ending)), ""):
        name = name.removesuffix(ending)
    return name


def unpack_start(packing: str, head: bytes, size: int) -> bytes:
    """The first ``size`` unpacked bytes, or fewer, of a file that begins with ``head``. Empty if it is damaged.

    The file may have several frames. The first ones may be empty, or end inside a record.
    """
    found = bytearray()
    with suppress(*DAMAGE, OSError):  # EOFError: ``head`` is only the file's start
        for piece in _unpack_frames(io.BytesIO(head), packing):
            found += piece
            if len(found) >= size:
                break
    return bytes(found[:size])


Chunks = Iterable[tuple[bytes, int]]
"""The unpacked content of a file in parts of about 1 MiB, each with the number of bytes of the file read so far."""


def read_chunks(file: InputFile) -> Iterator[tuple[bytes, int]]:
    """Yield ``Chunks`` up to the end of a file, or to its first damage.

    Raises:
        Corruption: the compressed stream is broken or cut off.
    """
    with file.open() as stream:
        pieces: list[bytes] = []
        size, damage = 0, None
        try:
            for piece in _unpack(stream, file.packing, file):
                pieces.append(piece)
                size += len(piece)
                if size >= BLOCK_BYTES:
                    yield b"".join(pieces), stream.tell()
                    pieces, size = [], 0
        except Corruption as error:
            damage = error
        if pieces:
            yield b"".join(pieces), stream.tell()
        if damage is not None:
            raise damage


class _Unpacked(io.RawIOBase):
    """A readable stream of the bytes of ``pieces``."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or memoryview(next(self._pieces, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _unpack(stream: BinaryIO, packings: str, file: InputFile) -> Iterator[bytes]:
    """Unpack the bytes of ``stream``, which has the formats ``packings``. ``file``: for messages."""
    outer, _, packing = packings.rpartition("+")
    if outer:
        stream = io.BufferedReader(_Unpacked(_unpack(stream, outer, file)))
    if not packing:
        yield from iter(lambda: stream.read(BLOCK_BYTES), b"")
        return
    try:
        yield from _unpack_frames(stream, packing, file.path)
    except OSError as error:
        if error.errno is not None:
            raise
        raise _broken(file, error) from error
    except DAMAGE as error:
        raise _broken(file, error) from error


def _unpack_frames(stream: BinaryIO, packing: str, path: str = "") -> Iterator[bytes]:
    """Unpack frame by frame.

    A stream that stops inside a frame is cut off. Bytes after the last frame are left out. If there are any, a warning names
    ``path``.
    """
    new_frame, magic, size = _FRAMES[packing], MAGIC[packing], FRAME_BYTES[packing]
    chunk = stream.read(size)
    while chunk:
        frame = new_frame()
        while not frame.eof:
            if not chunk:
                raise EOFError("the last frame is cut off")
            yield from _pieces(frame, chunk)
            chunk = b"" if frame.eof else stream.read(size)
        chunk = (frame.unused_data or stream.read(size)).lstrip(b"\0")  # tapes and disk images are filled up with zeros
        while len(chunk) < MAGIC_BYTES and (more := stream.read(size)):
            chunk = (chunk + more).lstrip(b"\0")
        if chunk and not chunk.startswith(magic) and not _is_skipped(chunk):
            if path:
                log.warning("%s: what follows the end of the %s stream is left out: it is no stream", path, packing)
            return


def _pieces(frame: Any, chunk: bytes) -> Iterator[bytes]:
    """Yield the unpacked content of ``chunk``."""
    if not isinstance(frame, bz2.BZ2Decompressor):
        yield frame.decompress(chunk)
        return
    yield frame.decompress(chunk, BLOCK_BYTES)
    while not (frame.eof or frame.needs_input):
        yield frame.decompress(b"", BLOCK_BYTES)


def _broken(file: InputFile, reason: object) -> Corruption:
    return Corruption(
        f"corpus {file.path}: broken {file.packing} stream ({reason}); fetch the file again or leave it out"
    )


def read_error(path: str | Path, error: OSError) -> NotFound | InvalidArgument:
    """The error for a corpus file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return NotFound(f"corpus {path}: the file is gone; check the name, and leave corpora alone during a build")
    return InvalidArgument(
        f"corpus {path}: cannot be read ({error.strerror or error}); check the file and its permissions"
    )
