"""What to build: corpora, tokenizer, destination and limits, checked once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from suffolk.datastore.errors import InvalidArgument

DEFAULT_SEGMENT_TOKENS = 64 << 20
DEFAULT_ORDER_DEPTH = 64
MAX_SEGMENT_TOKENS = (1 << 31) - (1 << 28)
"""At most 2^31 tokens are sorted in one go; the room above is for the last block of a segment, which is taken whole."""

TOKEN_FORMATS = ("u16", "u32")
TOKENIZATIONS = ("auto", "exact")
MODES = ("new", "append", "replace")


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Settings of one build.

    Attributes:
        corpora: files, folders or glob patterns, read in this order.
        output: the datastore's folder.
        tokenizer: a Hugging Face folder, a tokenizer.json or a hub name; None for corpora that are already tokenized (or,
            when appending, for the datastore's own tokenizer).
        mode: "new" refuses an existing datastore, "append" adds segments to it, "replace" publishes a new generation.
        text_field, id_field: field of a JSON line, where a dotted name goes into nested objects, or column of a Parquet file.
        metadata: fields of a JSON line or Parquet row to keep with its document; in both a dotted name goes into nested objects.
        extensions: endings of the files to take from folders; empty takes every file that is text.
        token_format: width of the ids in ``.bin`` files; None takes the width that the vocabulary needs.
        end_of_document: the id that ends a document in tokenized corpora; None if documents are not marked.
        vocab_size: number of ids, where no tokenizer says so.
        segment_tokens: tokens after which a segment is sorted and the next begun; bounds memory.
        order_depth: tokens by which suffixes are ordered; None takes 64, or the datastore's own when appending.
        tokenization: "auto" takes the fast path where it is proven equal, "exact" takes Hugging Face tokenizers alone.
        threads: processes for tokenizing and threads for sorting; 0 takes every core this process may use.

    Raises:
        InvalidArgument: a value is out of its bounds.
    """

    corpora: tuple[str, ...]
    output: Path
    tokenizer: str | None = None
    mode: str = "new"
    text_field: str = "text"
    id_field: str | None = None
    metadata: tuple[str, ...] = ()
    extensions: tuple[str, ...] = field(default=())
    token_format: str | None = None
    end_of_document: int | None = None
    vocab_size: int | None = None
    segment_tokens: int = DEFAULT_SEGMENT_TOKENS
    order_depth: int | None = None
    tokenization: str = "auto"
    threads: int = 0

    def __post_init__(self) -> None:
        if not self.corpora:
            raise InvalidArgument("corpora: none given; name at least one file, folder or pattern to build from")
        _require(self.mode in MODES, "mode", self.mode, f"one of {', '.join(MODES)}")
        _require(bool(self.text_field), "text field", "''", "the name of a field, such as text")
        _require(all(self.metadata), "metadata", "''", "names of fields, such as license,repo.name")
        _require(self.token_format in (None, *TOKEN_FORMATS), "token format", self.token_format, "u16 or u32")
        _require(self.tokenization in TOKENIZATIONS, "tokenization", self.tokenization, "auto or exact")
        _require(self.end_of_document is None or 0 <= self.end_of_document < 1 << 32, "end of document",
                 self.end_of_document, "a token id, 0 to 4294967295")  # fmt: skip
        _require(self.vocab_size is None or 1 <= self.vocab_size < 1 << 31, "vocab size", self.vocab_size,
                 "1 to 2147483647")  # fmt: skip
        _require(1 <= self.segment_tokens <= MAX_SEGMENT_TOKENS, "segment tokens", self.segment_tokens,
                 f"1 to {MAX_SEGMENT_TOKENS}")  # fmt: skip
        _require(
            self.order_depth is None or 1 <= self.order_depth <= 1024, "order depth", self.order_depth, "1 to 1024"
        )
        if self.end_of_document is not None and self.vocab_size is not None:
            _require(
                self.end_of_document < self.vocab_size,
                "end of document",
                self.end_of_document,
                "an id of the vocabulary",
            )
        _require(0 <= self.threads <= 1024, "threads", self.threads, "0 (every core) to 1024")

    def workers(self) -> int:
        """Processes and threads to use: ``threads``, or every core that this process may run on."""
        return self.threads or len(os.sched_getaffinity(0))


def _require(true: bool, name: str, value: object, allowed: str) -> None:
    if not true:
        raise InvalidArgument(f"{name}: {value} is not allowed; give {allowed}")
