"""Counts what a build reads. Lists in a file of JSON lines what the build leaves out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from suffolk.build_index.workspace import disk_errors
from suffolk.datastore.files import name_text, printable


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file or a record that yields no document. ``place``: its path, with the number of a line, row or element."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{printable(name_text(self.place))}: {self.reason}"


def skipped_line(skipped: Mapping[str, int], examples: Mapping[str, Sequence[str]]) -> str:
    """What is left out, as a text: how many files by reason, and the first names."""
    return "; ".join(_one_reason(*each, examples.get(each[0], ())) for each in sorted(skipped.items())) or "no files"


class SkippedLog:
    """Context manager over the file ``path``, with a JSON object for each ``Skipped``. Not thread-safe.

    Attributes:
        size: bytes written so far; 0 if there is no file.
    """

    def __init__(self, path: Path | None, files: Sequence[Skipped] = (), keep: int = 0) -> None:
        """Without a ``path``, nothing is written. The first ``keep`` bytes of the file stay. If none stay, ``files`` come first."""
        self._path, self._files, self._keep = path, files, keep
        self.size = self._start = 0

    def __enter__(self) -> SkippedLog:
        if self._path is not None:
            with disk_errors(self._path, "--skipped"):
                self._file = open(self._path, "ab")  # noqa: SIM115  closed by __exit__
                self.size = min(self._keep, os.fstat(self._file.fileno()).st_size)
                self._file.truncate(self.size)
            if not self.size:
                self.add(self._files)
        self._start = self.size
        return self

    def add(self, found: Iterable[Skipped]) -> None:
        """Write ``found``. Raises ResourceExhausted: the disk is full."""
        if self._path is None:
            return
        with disk_errors(self._path, "--skipped"):
            for each in found:
                self.size += self._file.write(json.dumps(asdict(each)).encode() + b"\n")
            self._file.flush()

    def cut(self, size: int | None) -> None:
        """Remove what was written after ``size``; None: what was written since the file was opened."""
        if self._path is not None:
            self.size = self._start if size is None else size
            with disk_errors(self._path, "--skipped"):
                self._file.truncate(self.size)

    def __exit__(self, *exception: object) -> None:
        if self._path is not None:
            self._file.close()


@dataclass(slots=True)
class BuildCounts:
    """Totals of a block, a segment or a build.

    Attributes:
        documents: number of documents that have tokens.
        described: number of documents that have each metadata field; a field that none has may be absent.
        tokens: number of tokens, without separators.
        text_bytes: bytes of UTF-8 text; for tokenized corpora, bytes of token ids.
        replaced: number of invalid UTF-8 sequences, each replaced by U+FFFD.
        left_out: number of records that yield no document, such as requests without an answer, conversations that the chat
            template rejects, and damaged records.
        routed: number of texts with content that only Hugging Face tokenizers handle.
        checked: number of slices that both libraries tokenized.
        differed: number of these slices with different ids. All ids of their blocks are from Hugging Face tokenizers.
    """

    documents: int = 0
    described: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    text_bytes: int = 0
    replaced: int = 0
    routed: int = 0
    checked: int = 0
    differed: int = 0
    left_out: int = 0

    def add(self, other: BuildCounts) -> None:
        self.described = {
            name: self.described.get(name, 0) + other.described.get(name, 0)
            for name in self.described | other.described
        }
        for item in fields(self):
            if item.name != "described":
                setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


def _one_reason(reason: str, count: int, paths: Sequence[str]) -> str:
    names = ", ".join([*(printable(name_text(path)) for path in paths), *["..."] * (count > len(paths))])
    return f"{count:,} {reason}" + f": {names}" * bool(paths)
