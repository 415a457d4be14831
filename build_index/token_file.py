"""A temporary file for the tokens of one segment. Tokens are appended, and then mapped for sorting."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.build_index.workspace import disk_error


class TokenFile:
    """Context manager over a file of tokens at ``path``; the file is removed at the end. Not thread-safe.

    Raises:
        ResourceExhausted: the disk is full.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._path = path
        self._dtype = dtype
        self.tokens = 0

    def __enter__(self) -> TokenFile:
        self._file = open(self._path, "wb")  # noqa: SIM115  closed by __exit__
        return self

    def append(self, tokens: npt.NDArray[Any]) -> None:
        """Add ``tokens`` (of the file's dtype) at the end."""
        try:
            self._file.write(tokens.tobytes())
        except OSError as error:
            raise disk_error(self._path, error) from error
        self.tokens += len(tokens)

    def mapped(self) -> npt.NDArray[Any]:
        """All tokens, read-only, as a memory map."""
        try:
            self._file.flush()
        except OSError as error:
            raise disk_error(self._path, error) from error
        return np.memmap(self._path, self._dtype, mode="r")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()
        except OSError as failure:  # an earlier error caused this error
            if error is None:
                raise disk_error(self._path, failure) from failure
        finally:
            self._path.unlink(missing_ok=True)
