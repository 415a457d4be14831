"""Reads a text column, or a column of token ids, of a Parquet or Arrow file in batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

from suffolk.build_index.arrow_file import ArrowFile
from suffolk.build_index.block import BLOCK_BYTES, Records, TokenRun
from suffolk.build_index.conversation import FIELDS, SYSTEM, TOOLS
from suffolk.build_index.input_file import InputFile
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.record_fields import keep_metadata, name_record, top_name
from suffolk.datastore.errors import Corruption, InvalidArgument, Unsupported
from suffolk.datastore.file_systems import is_storage_url
from suffolk.datastore.files import name_text
from suffolk.datastore.remote_files import open_url

IDS_COLUMN = "input_ids"
BATCH_ROWS = 256
BATCH_BYTES = 32 << 20
"""About the most bytes of the rows that are read at a time. pyarrow cannot read lists that hold 2 GiB of text at a time."""
KIND_NAMES = {"parquet": "Parquet", "arrow": "Arrow"}
TEXT_TYPES = ("string", "large_string", "string_view")


def read_parquet(file: InputFile, options: BuildOptions) -> Iterator[tuple[Records | TokenRun, int]]:
    """Yield batches of rows, each with the number of bytes of the file read so far.

    A batch has one row, or at most 1 MiB in the column of texts or ids. With a tokenizer, the rows come from a column of texts or
    conversations, if the file has one. Otherwise the rows are the lists of ids in ``input_ids``.

    Raises:
        Unsupported: pyarrow is not installed.
        Corruption: the file is damaged.
        InvalidArgument: there is no column to read, a value is missing or of the wrong type, or an id or metadata is
            not UTF-8.
    """
    column, extra = "", list[str]()
    try:
        with _opened(file.path, file.kind) as table:
            names = Columns(table.schema_arrow)
            column = _choose(names, file.path, options)
            extra = [name for name in (TOOLS, SYSTEM) if column in FIELDS and name in names]
            extra += [options.id_field] if options.id_field else []
            extra += [name for name in options.metadata if name in names]  # a file may lack some
            _require_single([column, *extra], table.schema_arrow, file.path)
            row = 0
            wanted = dict.fromkeys(map(names.stored, [column, *extra]))
            batches = _batches(table, list(wanted), file.size)
            raw = "" if column in extra else column
            top = top_name(column, table.schema_arrow.names)
            for batch, done in ((part, done) for whole, done in batches for part in _cut(whole, top)):
                row += batch.num_rows
                if column == IDS_COLUMN and column != options.text_field:
                    yield _token_run(batch, options, file.path, row - batch.num_rows), done
                else:
                    yield Records(file.path, row - batch.num_rows + 1, _rows(batch, raw)), done
    except OverflowError as error:
        raise InvalidArgument(
            f"corpus {file.path}: {' or '.join([*extra, column])} holds a time that is not in the years 1 to 9999; correct it, "
            "or name other columns with --id-field and --metadata"
        ) from error
    except UnicodeDecodeError as error:
        columns = " or ".join(extra or [column])
        raise InvalidArgument(
            f"corpus {file.path}: {columns} holds text that is not UTF-8 ({error.reason}); correct it, or name other columns "
            "with --id-field and --metadata"
        ) from error


def _batches(table: Any, columns: list[str], size: int) -> Iterator[tuple[Any, int]]:
    """Yield batches of rows, each with the number of bytes read so far. ``size``: bytes of the file."""
    if isinstance(table, ArrowFile):
        yield from table.batches(columns, size)
        return
    row, total = 0, max(1, table.metadata.num_rows)
    groups = map(table.metadata.row_group, range(table.metadata.num_row_groups))
    longest = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=1)
    rows = min(BATCH_ROWS, max(1, BATCH_BYTES // max(1, longest)))
    for batch in table.iter_batches(batch_size=rows, columns=columns):
        row += batch.num_rows
        yield batch, size * row // total


def unread_table(path: str, kind: str, options: BuildOptions) -> tuple[str, str]:
    """Return why a Parquet or Arrow file is not read, and the column that it lacks. Both texts are empty if it is read.

    Raises Unsupported, Corruption as ``read_parquet``.
    """
    with _opened(path, kind) as table:
        parts = 0 if isinstance(table, ArrowFile) else table.metadata.num_row_groups
        if parts and table.metadata.num_columns and table.metadata.row_group(0).column(0).file_path:
            return "Parquet metadata of other files", ""  # Dask writes such a file, named _metadata
        try:
            _choose(Columns(table.schema_arrow), path, options)
        except InvalidArgument as error:
            return f"{KIND_NAMES[kind]} without a text column", str(error)
    return "", ""


@contextmanager
def _opened(path: str, kind: str) -> Iterator[Any]:
    """Open a file of ``kind``. Opening and reading raise Unsupported and Corruption as ``read_parquet``."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise Unsupported(
            f"corpus {path}: reading {KIND_NAMES[kind]} needs pyarrow; pip install 'suffolk[parquet]'"
        ) from error
    try:
        source: Any = path  # pyarrow reads a path without calls of Python
        if is_storage_url(path):
            source = open_url(path)
        elif path != name_text(path):
            source = pyarrow.PythonFile(open(path, "rb"))  # noqa: SIM115  a path that is not UTF-8; closed with the table
        with ArrowFile(source) if kind == "arrow" else parquet.ParquetFile(source) as table:
            yield table
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # errors of pyarrow have no number
            raise
        reason = " ".join(str(error).split())[:160]
        if isinstance(error, pyarrow.ArrowNotImplementedError):
            raise Unsupported(
                f"corpus {path}: pyarrow cannot read this {KIND_NAMES[kind]} file ({reason}); write it with other types"
            ) from error
        if "crypt" in reason:
            raise Unsupported(f"corpus {path}: an encrypted Parquet file ({reason}); decrypt it") from error
        raise Corruption(
            f"corpus {path}: damaged {KIND_NAMES[kind]} file ({reason}); fetch it again or leave it out"
        ) from error


def _choose(names: Columns, path: str, options: BuildOptions) -> str:
    if options.id_field and options.id_field not in names:
        raise InvalidArgument(f"corpus {path}: no column '{options.id_field}' (--id-field); it has {_listing(names)}")
    chat = next((name for name in FIELDS if name in names), None)
    if options.records != "chat" and options.text_field in names and (options.tokenizer or IDS_COLUMN not in names):
        return options.text_field
    if chat is not None and options.records in ("auto", "chat") and (options.tokenizer or IDS_COLUMN not in names):
        return chat
    if IDS_COLUMN in names:
        return IDS_COLUMN
    if options.records == "chat":
        raise InvalidArgument(
            f"corpus {path}: no column of conversations; it has {_listing(names)}; rename one to 'messages'"
        )
    raise InvalidArgument(
        f"corpus {path}: no column '{options.text_field}' and no '{IDS_COLUMN}'; it has {_listing(names)}; "
        "name the text column with --text-field, or rename a column of conversations to 'messages'"
    )


def _require_single(wanted: list[str], schema: Any, path: str) -> None:
    """Refuse two columns of one name in ``wanted``, and two fields of one name inside such a column."""
    for name in (top_name(each, schema.names) for each in wanted):
        columns = schema.get_all_field_indices(name)
        if len(columns) > 1:
            raise InvalidArgument(f"corpus {path}: {len(columns)} columns are named '{name}'; rename the others")
        kinds = [schema.field(index).type for index in columns]
        while kinds:
            kind = kinds.pop()
            fields = list(kind) if str(kind).startswith("struct") else []
            kinds += [field.type for field in fields]
            kinds += [getattr(kind, each) for each in ("value_type", "item_type") if hasattr(kind, each)]
            names = [field.name for field in fields]
            twice = next((each for each in names if names.count(each) > 1), None)
            if twice is not None:
                raise InvalidArgument(
                    f"corpus {path}: column '{name}' has {names.count(twice)} fields named '{twice}'; rename the others"
                )


def _cut(batch: Any, column: str) -> Iterator[Any]:
    """Halve ``batch`` until ``column`` fits a block."""
    if batch.num_rows < 2 or batch.column(column).nbytes <= BLOCK_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half), column)
    yield from _cut(batch.slice(half), column)


def _listing(names: Columns) -> str:
    return ", ".join(list(names)[:12]) or "no columns"


def _rows(batch: Any, raw: str) -> tuple[dict[str, Any], ...]:
    """The rows as objects. Texts of column ``raw`` are bytes, because the later parsing replaces and counts invalid UTF-8."""
    if raw in batch.schema.names:
        batch = batch.set_column(batch.schema.names.index(raw), raw, _bytes(batch.column(raw)))
    chats = [name for name in (*FIELDS, TOOLS) if name in batch.schema.names]
    return tuple(row | {name: _written(row[name]) for name in chats} for row in plain_rows(batch))


def _written(value: Any) -> Any:
    """Remove null fields from ``value``.

    In a column, each struct has the fields of all structs. A call then has the arguments of all functions.
    """
    if isinstance(value, dict):
        return {name: _written(field) for name, field in value.items() if field is not None}
    return [_written(each) for each in value] if isinstance(value, list) else value


def _bytes(column: Any) -> Any:
    """Convert a text column to bytes; keep other columns. The later parsing replaces and counts invalid UTF-8 in the bytes."""
    if str(column.type).startswith("dictionary"):
        column = _bytes(column.dictionary).take(column.indices)  # pyarrow cannot decode all dictionaries
    return column.cast("large_binary") if str(column.type) in TEXT_TYPES else column


def _token_run(batch: Any, options: BuildOptions, path: str, row: int) -> TokenRun:
    lists = batch.column(IDS_COLUMN)
    values = lists.flatten() if hasattr(lists, "flatten") else None
    if values is None or not str(values.type).startswith(("int", "uint")) or lists.null_count or values.null_count:
        raise InvalidArgument(
            f"{path}:{row + 1}: column '{IDS_COLUMN}' is {lists.type} or holds nulls; token ids are lists of integers"
        )
    lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    ids = values.to_numpy(zero_copy_only=False)
    others = plain_rows(batch.drop_columns([IDS_COLUMN])) if batch.num_columns > 1 else [{}] * batch.num_rows
    origins = tuple(
        (name_record(each, f"{path}:{row + number}", path, options), keep_metadata(each, options.metadata))
        for number, each in enumerate(others, 1)
    )
    return TokenRun(path, 0, ids, tuple(int(start) for start in starts), origins)


class Columns:
    """The names of a file's columns, and dotted names of fields in nested columns. A map may have any field."""

    def __init__(self, schema: Any) -> None:
        """``schema``: pyarrow's."""
        self._names, self._maps = set[str](), set[str]()
        fields = [(field.name, field.type) for field in schema]
        while fields:
            name, kind = fields.pop()
            self._names.add(name)
            if str(kind).startswith("struct"):
                fields += [(f"{name}.{field.name}", field.type) for field in kind]
            elif str(kind).startswith("map"):
                self._maps.add(name)

    def __contains__(self, name: str) -> bool:
        return name in self._names or self.stored(name) != name

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def stored(self, name: str) -> str:
        """The column or field to read for ``name``. For a field of a map, this is the whole map."""
        return next((each for each in self._maps if name.startswith(f"{each}.") and name not in self._names), name)


def plain_rows(batch: Any) -> list[dict[str, Any]]:
    """The rows of ``batch`` as objects."""
    for index, column in enumerate(batch.columns):
        kind = _readable(column.type)
        if kind != column.type:
            batch = batch.set_column(index, batch.schema.names[index], column.cast(kind, safe=False))
    return [{name: _plain(value) for name, value in row.items()} for row in batch.to_pylist()]


def _readable(kind: Any) -> Any:
    """``kind`` with microseconds in place of nanoseconds, also inside other types. Python's times have no nanoseconds."""
    import pyarrow
    from pyarrow import types

    if types.is_timestamp(kind) and kind.unit == "ns":
        return pyarrow.timestamp("us", kind.tz)
    if (types.is_duration(kind) or types.is_time64(kind)) and kind.unit == "ns":
        return pyarrow.duration("us") if types.is_duration(kind) else pyarrow.time64("us")
    if types.is_struct(kind):
        return pyarrow.struct([field.with_type(_readable(field.type)) for field in kind])
    if types.is_map(kind):
        return pyarrow.map_(_readable(kind.key_type), kind.item_field.with_type(_readable(kind.item_type)))
    if types.is_fixed_size_list(kind):
        return pyarrow.list_(kind.value_field.with_type(_readable(kind.value_type)), kind.list_size)
    for is_kind, new in ((types.is_list, pyarrow.list_), (types.is_large_list, pyarrow.large_list)):
        if is_kind(kind):
            return new(kind.value_field.with_type(_readable(kind.value_type)))
    return _readable(kind.value_type) if types.is_dictionary(kind) and types.is_temporal(kind.value_type) else kind


def _plain(value: Any) -> Any:
    """Convert ``value`` for JSON: maps to objects, times and decimals to texts. NaN marks a missing number, and becomes null."""
    if isinstance(value, dict):
        return {name: _plain(field) for name, field in value.items()}
    if isinstance(value, list):
        is_map = bool(value) and all(type(each) is tuple for each in value)
        return {name: _plain(field) for name, field in value} if is_map else [_plain(each) for each in value]
    if isinstance(value, float):
        return None if value != value else value
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID | timedelta) else value
