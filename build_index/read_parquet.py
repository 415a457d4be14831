"""Reads a text column, or a column of token ids, of a Parquet file in batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from suffolk.build_index.block import BLOCK_BYTES, Records, Texts, TokenRun
from suffolk.build_index.conversation import FIELDS, TOOLS
from suffolk.build_index.documents import keep_metadata
from suffolk.build_index.inputs import InputFile
from suffolk.build_index.options import BuildOptions
from suffolk.datastore.documents import Metadata
from suffolk.datastore.errors import Corruption, InvalidArgument, Unsupported
from suffolk.datastore.file_systems import is_storage_url

IDS_COLUMN = "input_ids"
BATCH_ROWS = 256
TEXT_TYPES = ("string", "large_string", "string_view")


def read_parquet(file: InputFile, options: BuildOptions) -> Iterator[tuple[Texts | Records | TokenRun, int]]:
    """Yield batches of rows, each with the number of bytes of the file read so far. A batch has at most 1 MiB, or one row.

    With a tokenizer, the rows are those of a column of texts or conversations, if there is one. Otherwise they are the
    lists of ids in ``input_ids``.

    Raises:
        Unsupported: pyarrow is not installed.
        Corruption: the file is damaged.
        InvalidArgument: there is no column to read, a value is missing or of the wrong type, or an id or metadata is
            not UTF-8.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise Unsupported(
            f"corpus {file.path}: reading Parquet needs pyarrow; pip install 'suffolk[parquet]'"
        ) from error
    try:
        source: Any = file.open() if is_storage_url(file.path) else file.path  # pyarrow reads paths without Python
        with parquet.ParquetFile(source) as table:
            column = _choose(table.schema_arrow, file.path, options)
            kept = _kept_columns(table.schema_arrow, options)
            tools = [TOOLS] if column in FIELDS and TOOLS in table.schema_arrow.names else []
            wanted = [column, *tools, *([options.id_field] if options.id_field else []), *kept]
            row = 0
            total = max(1, table.metadata.num_rows)
            batches = table.iter_batches(batch_size=BATCH_ROWS, columns=list(dict.fromkeys(wanted)))
            for batch in chain.from_iterable(_cut(batch, column) for batch in batches):
                sources = _sources(batch, row, file.path, options.id_field)
                metadata = _metadata(batch, kept, options)
                row += batch.num_rows
                done = file.size * row // total
                if column in FIELDS and column != options.text_field:
                    yield Records(file.path, row - batch.num_rows + 1, tuple(batch.to_pylist())), done
                    continue
                read = _texts if column == options.text_field else _token_run
                yield read(batch, column, sources, metadata, file.path, row - batch.num_rows), done
    except UnicodeDecodeError as error:
        columns = " or ".join(wanted[1:] or wanted)
        raise InvalidArgument(
            f"corpus {file.path}: {columns} holds text that is not UTF-8 ({error.reason}); correct it, or name other columns "
            "with --id-field and --metadata"
        ) from error
    except pyarrow.ArrowException as error:
        reason = " ".join(str(error).split())[:160]
        raise Corruption(
            f"corpus {file.path}: damaged Parquet file ({reason}); fetch it again or leave it out"
        ) from error


def _choose(schema: Any, path: str, options: BuildOptions) -> str:
    names = set(schema.names)
    if options.id_field and options.id_field not in names:
        raise InvalidArgument(f"corpus {path}: no column '{options.id_field}' (--id-field); it has {_listing(names)}")
    chat = next((name for name in FIELDS if name in names), None)
    if options.records != "chat" and options.text_field in names and (options.tokenizer or IDS_COLUMN not in names):
        return options.text_field
    if chat is not None and options.records in ("auto", "chat") and (options.tokenizer or IDS_COLUMN not in names):
        return chat
    if IDS_COLUMN in names:
        return IDS_COLUMN
    raise InvalidArgument(
        f"corpus {path}: no column '{options.text_field}' and no '{IDS_COLUMN}'; it has {_listing(names)}; "
        "name the text column with --text-field"
    )


def _cut(batch: Any, column: str) -> Iterator[Any]:
    """Halve ``batch`` until ``column`` fits a block."""
    if batch.num_rows < 2 or batch.column(column).nbytes <= BLOCK_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half), column)
    yield from _cut(batch.slice(half), column)


def _listing(names: set[str]) -> str:
    return ", ".join(sorted(names)[:12]) or "no columns"


def _sources(batch: Any, row: int, path: str, id_field: str | None) -> list[str]:
    if id_field is None:
        return [f"{path}:{row + offset + 1}" for offset in range(batch.num_rows)]
    return [f"{path}#{value}" for value in batch.column(id_field).to_pylist()]


def _kept_columns(schema: Any, options: BuildOptions) -> list[str]:
    """The columns that hold the metadata fields. A field is a column, or a nested field of one."""
    columns = [name if name in schema.names else name.split(".")[0] for name in options.metadata]
    return [column for column in dict.fromkeys(columns) if column in schema.names]


def _metadata(batch: Any, columns: list[str], options: BuildOptions) -> tuple[Metadata, ...]:
    if not columns:
        return ()
    return tuple(keep_metadata(record, options.metadata) for record in batch.select(columns).to_pylist())


def _texts(batch: Any, column: str, sources: list[str], metadata: tuple[Metadata, ...], path: str, row: int) -> Texts:
    texts = _bytes(batch.column(column)).to_pylist()
    for offset, text in enumerate(texts):
        if not isinstance(text, (str, bytes)):
            raise InvalidArgument(
                f"{path}:{row + offset + 1}: column '{column}' holds {type(text).__name__}, not text; "
                "name the text column with --text-field"
            )
    return Texts(tuple(zip(sources, texts, strict=True)), metadata)


def _bytes(column: Any) -> Any:
    """A text column as bytes; other columns unchanged. Parsing later replaces and counts invalid UTF-8 in the bytes."""
    if str(column.type).startswith("dictionary"):
        column = column.dictionary_decode()
    return column.cast("large_binary") if str(column.type) in TEXT_TYPES else column


def _token_run(
    batch: Any, column: str, sources: list[str], metadata: tuple[Metadata, ...], path: str, row: int
) -> TokenRun:
    lists = batch.column(column)
    values = lists.flatten() if hasattr(lists, "flatten") else None
    if values is None or not str(values.type).startswith(("int", "uint")) or lists.null_count or values.null_count:
        raise InvalidArgument(
            f"{path}:{row + 1}: column '{column}' is {lists.type} or holds nulls; token ids are lists of integers"
        )
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    ids = values.to_numpy(zero_copy_only=False)
    return TokenRun(path, 0, ids, tuple(int(start) for start in starts), tuple(sources), metadata)
