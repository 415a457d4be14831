"""The functions of tasks on a cluster. They run in processes of Ray, and import Ray only to fetch objects."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffolk.build_index.block import Payload, Position
from suffolk.build_index.encode_block import BlockEncoder, EncodedBlock, EncodeSetup
from suffolk.build_index.input_file import InputFile
from suffolk.build_index.inputs import Inputs
from suffolk.build_index.on_ray.cluster import scratch_folder
from suffolk.build_index.on_ray.units import Place
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.reader import read_blocks
from suffolk.build_index.skipped import BuildCounts, Skipped
from suffolk.build_index.token_file import TokenFile
from suffolk.build_index.workspace import named_by_content
from suffolk.datastore import _native
from suffolk.datastore.documents import DocumentTableWriter
from suffolk.datastore.errors import ResourceExhausted
from suffolk.datastore.host_memory import process_memory
from suffolk.datastore.manifest import SEGMENTS_NAME
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.datastore.segment import SegmentEntry, token_dtype, write_segment

PART_BYTES = 16 << 20
"""Bytes of a part in which a segment is returned."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Facts of an encoded block for the coordinator.

    Attributes:
        length: number of tokens and separators.
        counts, left_out: see ``EncodedBlock``.
        memory: peak memory of the process, in bytes.
    """

    length: int
    counts: BuildCounts
    left_out: list[Skipped]
    memory: int


def read_unit(files: tuple[InputFile, ...], options: BuildOptions, token_width: str, start: Position) -> Iterator[Any]:
    """Yield for each block its place, then its content. The last place has no block."""
    inputs = Inputs(files)
    for block in read_blocks(inputs, options, token_width, start):
        yield Place(True, block.next, block.bytes_read)
        yield block.payload
    yield Place(False, Position(len(files), 0), inputs.size)


_encoder: tuple[str, BlockEncoder] | None = None


def encode_block(build: str, setup: Sequence[Any], payload: Payload) -> tuple[EncodedBlock, Encoded]:
    """Tokenize a block.

    Args:
        build: names the build. A process keeps the encoder of its last build, because creating an encoder takes seconds.
        setup: the reference to the ``EncodeSetup``. It is in a list, because Ray would otherwise fetch it for each block.
    """
    global _encoder
    if _encoder is None or _encoder[0] != build:
        import ray

        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is a task for each core
        settings: EncodeSetup = ray.get(setup[0])
        _encoder = build, BlockEncoder(settings)
    block = _encoder[1].encode(payload)
    return block, Encoded(len(block.tokens), block.counts, block.left_out, process_memory("VmHWM"))


def sort_segment(name: str, blocks: Sequence[Any], settings: Mapping[str, Any], url: str | None) -> Iterator[Any]:
    """Sort encoded blocks to a segment in a temporary folder.

    Yields its entry with the peak memory of the process in bytes, then the file in parts unless it was sent.

    Args:
        blocks: references to ``EncodedBlock``, fetched one at a time.
        settings: as for ``write_segment``.
        url: where the segment is sent; None: the task returns it.
    """
    import ray

    try:
        with scratch_folder() as folder:
            yield from _sort(folder / name, map(ray.get, blocks), settings, url)
    except ResourceExhausted as error:
        raise ResourceExhausted(f"node {socket.gethostname()}: {error}") from error


def _sort(path: Path, blocks: Iterable[EncodedBlock], settings: Mapping[str, Any], url: str | None) -> Iterator[Any]:
    table = DocumentTableWriter()
    with TokenFile(path.with_name("tokens"), token_dtype(settings["vocab_size"])) as file:
        for block in blocks:
            file.append(block.tokens)
            table.extend(block.origins)
        entry = write_segment(path, file.mapped(), documents=table.finish(), **settings)
    named = named_by_content(entry)
    if url is not None:
        _send(path, named, RemoteFolder(url))
    yield named, process_memory("VmHWM")
    if url is not None:
        return
    with open(path, "rb") as written:
        while part := written.read(PART_BYTES):
            yield part


def _send(path: Path, entry: SegmentEntry, remote: RemoteFolder) -> None:
    """Verify a segment. Send it, unless a lost task has already sent it."""
    _native.Segment(os.fspath(path)).verify("checksums")
    if remote.sizes(SEGMENTS_NAME).get(entry.name) != entry.bytes:
        remote.upload(path, f"{SEGMENTS_NAME}/{entry.name}", lambda size: None)
