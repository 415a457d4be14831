"""A temporary file for the tokens of one segment. Tokens are appended, and then mapped for sorting."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.build_index.workspace import disk_errors


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
        with disk_errors(self._path):
            self._file.write(tokens.tobytes())
        self.tokens += len(tokens)

    def mapped(self) -> npt.NDArray[Any]:
        """All tokens, read-only, as a memory map."""
        with disk_errors(self._path):
            self._file.flush()
        return np.memmap(self._path, self._dtype, mode="r")

    def __exit__(self, error: object, *_: object) -> None:
        try:
            with suppress(OSError) if error else disk_errors(self._path):  # an earlier error causes this one
                self._file.close()
        finally:
            self._path.unlink(missing_ok=True)
