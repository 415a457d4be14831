"""Damages segment files, and gives them valid checksums again."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

HEADER_BYTES = 256
TRAILER_BYTES = 32
ENTRY = struct.Struct("<IIQQ")
CHUNK_BYTES = 4 << 20


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """Compute CRC-32C independently of the core."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


@dataclass(frozen=True)
class Section:
    """An entry of the section table, and the entry's own offset in the file."""

    place: int
    id: int
    offset: int
    bytes: int


def sections(segment: bytes) -> list[Section]:
    """Read the section table of a valid segment of one chunk, with any number of sections."""
    (begin,) = struct.unpack_from("<Q", segment, len(segment) - TRAILER_BYTES)
    found = []
    for place in range(begin, len(segment) - TRAILER_BYTES - 4, ENTRY.size):
        number, _, offset, size = ENTRY.unpack_from(segment, place)
        found.append(Section(place, number, offset, size))
    return found


def mend(segment: bytearray) -> bytes:
    """Return the file with correct checksums of header, chunk and trailer. Sizes and offsets are unchanged.

    The header says where the section table begins. If no checksum fits behind that place, only the header's is corrected.
    """
    segment[252:256] = struct.pack("<I", crc32c(segment[:252]))
    (table,) = struct.unpack_from("<Q", segment, 112)
    trailer = len(segment) - TRAILER_BYTES
    if table > trailer - 4:
        return bytes(segment)
    segment[trailer - 4 : trailer] = struct.pack("<I", crc32c(segment[:table]))
    segment[trailer : trailer + 20] = struct.pack("<QQ", table, len(segment)) + segment[252:256]
    segment[trailer + 20 : trailer + 24] = struct.pack("<I", crc32c(segment[table : trailer + 20]))
    return bytes(segment)


def checksum(segment: bytes) -> str:
    """Return the file's checksum as a manifest states it."""
    return f"{struct.unpack_from('<I', segment, len(segment) - 12)[0]:08x}"


def rewrite(path: Path, content: bytes) -> None:
    """Write a new file, since the old one may still be mapped. A rename would wait for the disk."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)
