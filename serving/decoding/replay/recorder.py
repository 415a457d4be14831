"""Appends finished generations to a file of recordings."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
from pathlib import Path

from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.replay.recording import FINISHED, Recording

_MODE = 0o600
"""Mode of a new file, because it holds users' texts."""


class Recorder:
    """An open file of recordings. Thread-safe; several processes may append to one file. A context manager.

    The file holds users' texts as token ids. Only its owner can read a new file.
    """

    def __init__(self, path: Path, vocab_size: int, model: str = "", tokenizer: str | None = None) -> None:
        """Open or create ``path``. Raises the errors of ``require_recordable``.

        Args:
            vocab_size, model, tokenizer: fields of every ``Recording``.
        """
        require_recordable(path)
        self.path = path
        self._model = vocab_size, model, tokenizer
        self._lock = threading.Lock()
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        except OSError as error:
            raise _refused(path, error) from error

    def add(self, generation: Generation, group: str = "") -> bool:
        """Append ``generation``. Returns False if it was cancelled, has failed, or must not be remembered.

        Raises:
            PermissionDenied: the file is closed or cannot be written. The file then contains no part of the line.
        """
        if generation.stats.finish not in FINISHED or not generation.request.options.remember:
            return False
        recording = Recording.of(generation, *self._model, group)
        line = json.dumps(recording.to_dict(), separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._file < 0:
                raise PermissionDenied(f"record {self.path}: it is closed; open another Recorder")
            try:
                self._append(line)
            except OSError as error:
                raise _refused(self.path, error) from error
        return True

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            file, self._file = self._file, -1
            if file >= 0:
                os.close(file)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            before = os.fstat(self._file).st_size
            rest = memoryview(line)
            try:
                while rest:
                    rest = rest[os.write(self._file, rest) :]
            except BaseException:  # after a full disk or Ctrl-C: remove half a line
                os.ftruncate(self._file, before)
                raise
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def opened_recorder(
    path: Path | None, target: Target, model: str
) -> contextlib.AbstractContextManager[Recorder | None]:
    """A recorder of ``target``'s texts, or None if ``path`` is None. ``model``: the target's folder or hub name."""
    if path is None:
        return contextlib.nullcontext()
    tokenizer = None if target.tokenizer is None else fingerprint(load_tokenizer(model))
    return Recorder(path, target.vocab_size, Path(model).absolute().name, tokenizer)


def require_recordable(path: Path) -> None:
    """Raise if recordings cannot be appended to ``path``. Changes nothing.

    Raises:
        InvalidArgument: the file is compressed, or contains something other than complete recordings.
        NotFound: its folder does not exist.
        PermissionDenied: it cannot be read.
    """
    if path.suffix in (".zst", ".gz"):
        raise InvalidArgument(f"record {path}: lines cannot be added to a compressed file; name a .jsonl file")
    if not path.absolute().parent.is_dir():
        raise NotFound(f"record {path}: there is no such folder; name a file in a folder that exists")
    try:
        with path.open("rb") as file:
            begin = file.readline()
            last = os.pread(file.fileno(), 1, os.fstat(file.fileno()).st_size - 1) if begin else b"\n"
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refused(path, error) from error
    if begin and not begin.startswith(b'{"recording":'):
        raise InvalidArgument(f"record {path}: it holds something other than recordings; name another file")
    if last != b"\n":
        raise InvalidArgument(f"record {path}: its last line is incomplete; remove that line, or name another file")


def _refused(path: Path, error: OSError) -> PermissionDenied:
    return PermissionDenied(f"record {path}: cannot be written ({error.strerror}); name another file")
