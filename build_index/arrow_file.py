"""Reads Arrow files with a footer (Feather files), and Arrow streams (files of the package ``datasets``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from suffolk.build_index.record_fields import top_name

FILE, STREAM = b"ARROW1", b"\xff\xff\xff\xff"
"""First bytes of both kinds. Files of other formats may begin with the bytes of a stream, too."""
STREAM_ENDINGS = (".arrow", ".arrows", ".ipc", ".feather")
_END = STREAM + bytes(4)
"""The end mark of a stream. A stream without it is refused: it may have been cut between two batches, which pyarrow accepts."""


class ArrowFile(ExitStack):
    """An open Arrow file or stream. A context manager. Calls raise pyarrow's errors."""

    def __init__(self, source: Any) -> None:
        """``source``: a path, or an open file, which ``close`` closes too."""
        import pyarrow

        super().__init__()
        stream = pyarrow.OSFile(source) if isinstance(source, str) else pyarrow.PythonFile(source, "r")
        self._source = self.enter_context(stream)
        is_file = stream.read(len(FILE)) == FILE
        stream.seek(0)
        self._reader = pyarrow.ipc.open_file(stream) if is_file else pyarrow.ipc.open_stream(stream)
        self._count = self._reader.num_record_batches if is_file else None
        self.schema_arrow = self._reader.schema

    def batches(self, columns: list[str], size: int) -> Iterator[tuple[Any, int]]:
        """Yield the rows in batches, each with the number of bytes read so far. ``size``: bytes of the file.

        If a dotted name in ``columns`` is no column, the batches have the whole column named before the dot.
        """
        import pyarrow

        names = self.schema_arrow.names
        tops = list(dict.fromkeys(top_name(name, names) for name in columns))
        if self._count is None:
            for batch in self._reader:
                yield batch.select(tops), min(self._source.tell(), size)
            self._source.seek(self._source.tell() - len(_END))
            if self._source.read(len(_END)) != _END:
                raise pyarrow.ArrowInvalid("the stream has no end mark")
        else:
            for index in range(self._count):
                yield self._reader.get_batch(index).select(tops), size * (index + 1) // self._count
