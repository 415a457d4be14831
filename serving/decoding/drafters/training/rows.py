"""Reads the rows of a corpus: texts and conversations."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from suffolk.build_index.block import Lines, Records, Texts, TokenRun
from suffolk.build_index.conversation import Message, find_conversation
from suffolk.build_index.documents import no_content, parse_documents, read_records
from suffolk.build_index.input_file import read_error
from suffolk.build_index.inputs import Inputs, find_inputs
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.reader import read_blocks
from suffolk.build_index.record_fields import has_field, read_field
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.training.options import TrainOptions
from suffolk.serving.decoding.drafters.training.workspace import work_folder

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """A text or a conversation; the other field is None. ``source``: its file and line."""

    source: str
    text: str | None = None
    messages: tuple[Message, ...] | None = None

    @property
    def content(self) -> str:
        """The row without its source. Copies of a row have equal content."""
        return self.text if self.text is not None else json.dumps(self.messages, sort_keys=True)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of the corpus. ``sha256``: the digest of its content, in hexadecimal."""

    path: str
    bytes: int
    sha256: str


def reading_options(options: TrainOptions) -> BuildOptions:
    """The options of the corpus reader."""
    return BuildOptions(
        corpora=options.corpora, output=options.output, tokenizer=options.model, text_field=options.text_field
    )


def find_corpus(options: TrainOptions) -> Inputs:
    """The files of the corpora, except files in the run's work folder.

    Raises the errors of ``find_inputs``, the errors of ``read_rows`` up to the first row, and InvalidArgument if there is no row.
    """
    reading = reading_options(options)
    inputs = find_inputs(reading)
    own = work_folder(options.output)
    found = replace(inputs, files=tuple(file for file in inputs.files if own not in Path(file.path).resolve().parents))
    skipped = Counter[str]()
    if next(read_rows(found, reading, skipped, lambda _: None), None) is None:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in skipped.items()) or "no rows"
        raise InvalidArgument(
            f"corpus {' '.join(options.corpora)}: nothing to learn from ({reasons}); name files with text or conversations"
        )
    return found


def describe_files(inputs: Inputs) -> list[DataFile]:
    """The sizes and digests of all files. Raises NotFound or InvalidArgument if a file cannot be read."""
    return [DataFile(file.path, file.size, _digest(file.path)) for file in inputs.files]


def read_rows(
    inputs: Inputs, options: BuildOptions, skipped: Counter[str], report: Callable[[float], None]
) -> Iterator[Row]:
    """Read all rows in order.

    Args:
        skipped: counts skipped rows by reason.
        report: receives the share of bytes read so far.

    Raises:
        InvalidArgument: a file holds token ids, or a line has no text and no messages. The message names file and line.
        NotFound, Corruption: a file is missing or damaged.
    """
    for block in read_blocks(inputs, options, "u16"):
        if isinstance(block.payload, TokenRun):
            raise InvalidArgument(
                f"corpus {block.payload.path}: holds token ids; heads learn from text, name text files"
            )
        if isinstance(block.payload, Texts):
            yield from _cut(block.payload, options)
        else:
            yield from _read_records(block.payload, options, skipped)
        report(block.bytes_read / max(1, inputs.size))


def _read_records(payload: Lines | Records, options: BuildOptions, skipped: Counter[str]) -> Iterator[Row]:
    for place, record, _ in read_records(payload):
        text = read_field(record, options.text_field)
        if (conversation := find_conversation(record, place)) is not None:
            yield Row(place, messages=conversation.messages)
        elif isinstance(text, str | bytes):
            yield from _cut(Texts(((place, text),)), options)
        elif text is None and has_field(record, options.text_field):
            skipped["rows without a text (null or NaN)"] += 1
        else:
            raise InvalidArgument(no_content(place, options, record))


def _cut(texts: Texts, options: BuildOptions) -> Iterator[Row]:
    """One row for each text. A text of more than a million characters gives several rows."""
    found = parse_documents(texts, options)
    for (source, _), text in zip(found.origins, found.texts, strict=True):
        yield Row(source, text=text)


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with Path(path).open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise read_error(path, error) from error
    return digest.hexdigest()
