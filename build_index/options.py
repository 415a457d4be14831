"""The settings of a build: corpora, tokenizer, output and limits."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import Threads, Within, check_fields

DEFAULT_SEGMENT_TOKENS = 128 << 20
DEFAULT_ORDER_DEPTH = 64
MAX_SEGMENT_TOKENS = (1 << 31) - (1 << 28)
"""A segment takes whole blocks, so it may exceed its size by one block. The sort takes at most 2^31 tokens."""

TOKEN_FORMATS = ("u16", "u32")
TOKENIZATIONS = ("auto", "exact")
RECORDS = ("auto", "text", "chat", "recording")
ON_ERROR = ("stop", "skip")
MODES = ("new", "append", "replace")


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Settings of one build.

    Attributes:
        corpora: files, folders or glob patterns, read in this order.
        output: the datastore's folder.
        tokenizer: a Hugging Face folder, a tokenizer.json or a hub name. None: the corpora are tokenized or, when
            appending, the datastore's tokenizer is used.
        mode: "new" refuses an existing datastore, "append" adds segments to it, "replace" replaces its segments by new
            ones.
        text_field, id_field: field of a JSON line (a dotted name reads nested objects), or column of a Parquet file.
        records: the form of JSON lines and Parquet rows. "text" reads ``text_field``; "chat" writes conversations with the
            tokenizer's chat template; "recording" takes the tokens of ``--record``; "auto" decides by the fields.
        metadata: fields of a JSON line or Parquet row to keep with the document; a dotted name reads nested objects.
        extensions: endings of the files to read in folders; empty: every text file.
        token_format: width of the ids in ``.bin`` files; None: the width that the vocabulary needs.
        end_of_document: the id that ends a document in tokenized corpora; None if documents are not marked.
        vocab_size: number of ids, for corpora without a tokenizer.
        segment_tokens: the size of a segment, in tokens; it bounds memory.
        order_depth: tokens by which suffixes are sorted. None: 64, or when appending the datastore's depth.
        tokenization: "auto" uses Kitoken if it gives equal ids for a sample, "exact" uses only Hugging Face tokenizers.
        on_error: "stop" ends the build at a record that cannot be read; "skip" leaves such records out and counts them, as
            it does with the rest of a damaged file.
        strict: whether a file that may hold text and cannot be read is an error, and a folder without files.
        skipped: a file for the names of all files and records that are left out, with the reasons; None: not written.
        threads: processes for tokenizing and threads for sorting; 0: every core that this process may use.

    Raises:
        InvalidArgument: a value is out of its bounds.
    """

    corpora: tuple[str, ...]
    output: Path
    tokenizer: str | None = None
    mode: Annotated[str, MODES] = "new"
    text_field: str = "text"
    id_field: str | None = None
    records: Annotated[str, RECORDS] = "auto"
    metadata: tuple[str, ...] = ()
    extensions: tuple[str, ...] = field(default=())
    token_format: Annotated[str, TOKEN_FORMATS] | None = None
    end_of_document: Annotated[int, Within(0, (1 << 32) - 1)] | None = None
    vocab_size: Annotated[int, Within(1, (1 << 31) - 1)] | None = None
    segment_tokens: Annotated[int, Within(1, MAX_SEGMENT_TOKENS)] = DEFAULT_SEGMENT_TOKENS
    order_depth: Annotated[int, Within(1, 1024)] | None = None
    tokenization: Annotated[str, TOKENIZATIONS] = "auto"
    on_error: Annotated[str, ON_ERROR] = "stop"
    strict: bool = False
    skipped: Path | None = None
    threads: Threads = 0

    def __post_init__(self) -> None:
        if not self.corpora:
            raise InvalidArgument(
                Field("corpora"), ": none given; name at least one file, folder or pattern to build from"
            )
        check_fields(self)
        end, size = self.end_of_document, self.vocab_size
        for good, name, value, allowed in (
            (self.text_field, "text_field", "''", "the name of a field, such as text"),
            (all(self.metadata), "metadata", ",".join(self.metadata), "names of fields, such as license,repo.name"),
            (_are_endings(self.extensions), "extensions", ",".join(self.extensions), "endings, such as .py,.md"),
            (end is None or size is None or end < size, "end_of_document", end, f"an id of the vocabulary of {size}"),
        ):
            if not good:
                raise InvalidArgument(Field(name), f" is {value}; it must be {allowed}")

    def workers(self) -> int:
        """Processes and threads to use: ``threads``, or every core that this process may run on."""
        return self.threads or len(os.sched_getaffinity(0))


def _are_endings(extensions: Sequence[str]) -> bool:
    """Whether each is a single ending. A pattern, or several endings in one text, would exclude all files."""
    return not any(re.search(r"[\s*?\[/]", each) for each in extensions)
