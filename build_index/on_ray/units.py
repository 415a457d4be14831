"""Cuts the inputs of a build into units, which tasks read independently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from suffolk.build_index.block import Position
from suffolk.build_index.input_file import InputFile
from suffolk.build_index.inputs import Inputs

UNIT_BYTES = 16 << 20
"""A unit takes whole files until it has this many bytes, because a task costs some milliseconds."""


@dataclass(frozen=True, slots=True)
class Place:
    """The end of a block of a unit, as in ``Block``. The last place is the end of the unit; its ``has_block`` is False."""

    has_block: bool
    next: Position
    bytes_read: int


@dataclass(frozen=True, slots=True)
class Unit:
    """Consecutive files of the inputs.

    Attributes:
        files: the files.
        first: index of the first file in the inputs.
        bytes_before: bytes of the files before it.
        start: where reading begins, counted from ``first``.
    """

    files: tuple[InputFile, ...]
    first: int
    bytes_before: int
    start: Position

    def in_inputs(self, place: Place) -> Place:
        """Convert a place of this unit to a place in all inputs."""
        next = Position(self.first + place.next.file, place.next.block)
        return replace(place, next=next, bytes_read=self.bytes_before + place.bytes_read)


def cut_units(inputs: Inputs, start: Position) -> Iterator[Unit]:
    """The units from ``start`` on. Read in order, they give the same blocks as ``read_blocks`` for all inputs.

    Small text files share blocks. So there is no cut between two of them.
    """
    files, first, size = inputs.files, start.file, 0
    before = sum(file.size for file in files[:first])
    for index in range(start.file, len(files)):
        size += files[index].size
        last = index + 1 == len(files)
        if last or (size >= UNIT_BYTES and not (files[index].is_small_text and files[index + 1].is_small_text)):
            block = start.block if first == start.file else 0
            yield Unit(files[first : index + 1], first, before, Position(0, block))
            first, before, size = index + 1, before + size, 0
