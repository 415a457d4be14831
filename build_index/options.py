"""The settings of a build: corpora, tokenizer, output and limits."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import Threads, Within, check_fields, option

DEFAULT_SEGMENT_TOKENS = 128 << 20
DEFAULT_ORDER_DEPTH = 64
MAX_SEGMENT_TOKENS = (1 << 31) - (1 << 28)
"""Largest ``segment_tokens``. A segment may exceed it by one block, and the sort takes at most 2^31 tokens."""

TOKEN_FORMATS = ("u16", "u32")
TOKENIZATIONS = ("auto", "exact")
RECORDS = ("auto", "text", "chat", "recording")
ON_ERROR = ("stop", "skip")
MODES = ("new", "append", "replace")


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Settings of reading a corpus."""

    GROUP = "reading"
    text_field: str = option(
        "text", "field or column with the text; a.b is field b of the object a", metavar="NAME", blank=True
    )
    records: Annotated[str, RECORDS] = option(
        "auto",
        "form of JSON records and Parquet rows. 'text': the text field; 'chat': conversations ('messages', 'conversations') and "
        "logs of OpenAI's API, through the chat template; 'recording': lines of --record; 'auto' finds the form by the fields",
    )
    id_field: str | None = option(None, "field or column that names a document", metavar="NAME", blank=True)
    on_error: Annotated[str, ON_ERROR] = option(
        "stop", "at damage, 'stop' ends the build; 'skip' leaves out the record or the rest of the file, and counts it"
    )
    strict: bool = option(
        False, "refuse corpora with files that cannot be read and may hold text, and folders without files"
    )
    skipped: Path | None = option(
        None,
        "write every file and record that is left out, with the reason, to this file of JSON lines",
        metavar="FILE",
        written=True,
    )
    token_format: Annotated[str, TOKEN_FORMATS] | None = option(
        None, "type of the ids in .bin files (default: by vocabulary size)"
    )
    end_of_document: Annotated[int, Within(0, (1 << 32) - 1)] | None = option(
        None, "id that ends documents in tokenized corpora", metavar="ID"
    )
    vocab_size: Annotated[int, Within(1, (1 << 31) - 1)] | None = option(
        None, "number of ids, for tokenized corpora without --tokenizer"
    )


@dataclass(frozen=True, kw_only=True)
class MakingOptions:
    """Settings of making segments."""

    GROUP = "making"
    tokenization: Annotated[str, TOKENIZATIONS] = option(
        "auto", "'auto' takes a fast tokenizer if its ids are proven equal; 'exact' takes only Hugging Face tokenizers"
    )
    segment_tokens: Annotated[int, Within(1, MAX_SEGMENT_TOKENS)] = option(
        DEFAULT_SEGMENT_TOKENS, "the most tokens in a segment; bounds the memory of the build"
    )
    order_depth: Annotated[int, Within(1, 1024)] | None = option(
        None,
        f"number of first tokens by which suffixes are sorted (default: {DEFAULT_ORDER_DEPTH}, or the datastore's)",
    )
    threads: Threads = option(0, "number of processes and threads; 0 is one for each core (default: 0)")


@dataclass(frozen=True)
class BuildOptions(ReadingOptions, MakingOptions):
    """Settings of one build.

    Attributes:
        corpora: files, folders or glob patterns, read in this order.
        output: the datastore's folder.
        tokenizer: a Hugging Face folder, a tokenizer.json or a hub name. None: the corpora are tokenized or, when
            appending, the datastore's tokenizer is used.
        mode: "new" refuses an existing datastore, "append" adds segments to it, "replace" replaces its segments by new
            ones.
        metadata: fields of a JSON line or Parquet row to keep with the document; a dotted name reads nested objects.
        extensions: endings of the files to read in folders; empty: files with any ending.

    Raises:
        InvalidArgument: a value is out of its bounds.
    """

    corpora: tuple[str, ...]
    output: Path
    tokenizer: str | None = None
    mode: Annotated[str, MODES] = "new"
    metadata: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()

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
    """Whether each item is a single ending. A pattern, or several endings in one text, would exclude all files."""
    return not any(re.search(r"[\s*?\[/]", each) for each in extensions)
