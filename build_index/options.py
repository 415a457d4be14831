"""The settings of a build: corpora, tokenizer, output and limits."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from suffolk.datastore.errors import Field, InvalidArgument

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
        on_error: "stop" ends the build at a record that cannot be read; "skip" leaves such records out and counts them.
        strict: whether a file that may hold text and cannot be read is an error.
        skipped: a file for the names of all files and records that are left out, with the reasons; None: not written.
        threads: processes for tokenizing and threads for sorting; 0: every core that this process may use.

    Raises:
        InvalidArgument: a value is out of its bounds.
    """

    corpora: tuple[str, ...]
    output: Path
    tokenizer: str | None = None
    mode: str = "new"
    text_field: str = "text"
    id_field: str | None = None
    records: str = "auto"
    metadata: tuple[str, ...] = ()
    extensions: tuple[str, ...] = field(default=())
    token_format: str | None = None
    end_of_document: int | None = None
    vocab_size: int | None = None
    segment_tokens: int = DEFAULT_SEGMENT_TOKENS
    order_depth: int | None = None
    tokenization: str = "auto"
    on_error: str = "stop"
    strict: bool = False
    skipped: Path | None = None
    threads: int = 0

    def __post_init__(self) -> None:
        if not self.corpora:
            raise InvalidArgument(
                Field("corpora"), ": none given; name at least one file, folder or pattern to build from"
            )
        end, size, depth = self.end_of_document, self.vocab_size, self.order_depth
        for good, name, value, allowed in (
            (self.mode in MODES, "mode", self.mode, f"one of {', '.join(MODES)}"),
            (bool(self.text_field), "text field", "''", "the name of a field, such as text"),
            (all(self.metadata), "metadata", "''", "names of fields, such as license,repo.name"),
            (
                _are_endings(self.extensions),
                "extensions",
                ",".join(self.extensions),
                "endings of names, such as .py,.md",
            ),
            (self.records in RECORDS, "records", self.records, f"one of {', '.join(RECORDS)}"),
            (self.on_error in ON_ERROR, "on error", self.on_error, f"one of {', '.join(ON_ERROR)}"),
            (self.token_format in (None, *TOKEN_FORMATS), "token format", self.token_format, "u16 or u32"),
            (self.tokenization in TOKENIZATIONS, "tokenization", self.tokenization, "auto or exact"),
            (end is None or 0 <= end < 1 << 32, "end of document", end, "a token id, 0 to 4294967295"),
            (size is None or 1 <= size < 1 << 31, "vocab size", size, "1 to 2147483647"),
            (
                1 <= self.segment_tokens <= MAX_SEGMENT_TOKENS,
                "segment tokens",
                self.segment_tokens,
                f"1 to {MAX_SEGMENT_TOKENS}",
            ),
            (depth is None or 1 <= depth <= 1024, "order depth", depth, "1 to 1024"),
            (end is None or size is None or end < size, "end of document", end, "an id of the vocabulary"),
            (0 <= self.threads <= 1024, "threads", self.threads, "0 (every core) to 1024"),
        ):
            if not good:
                raise InvalidArgument(f"{name}: {value} is not allowed; give {allowed}")

    def workers(self) -> int:
        """Processes and threads to use: ``threads``, or every core that this process may run on."""
        return self.threads or len(os.sched_getaffinity(0))


def _are_endings(extensions: Sequence[str]) -> bool:
    """Whether none is a pattern or several, which would exclude all files."""
    return not any(re.search(r"[\s*?\[/]", each) for each in extensions)
