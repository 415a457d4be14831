"""Adds finished generations to a file of recordings."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
from pathlib import Path
from types import TracebackType

from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.engine.loop.generation import Generation
from suffolk.serving.engine.model.target import Target
from suffolk.serving.replay.recording import FINISHED, Recording

_MODE = 0o600
"""Of a new file: it holds what users wrote."""


class Recorder:
    """An open file of recordings; whole lines are added at its end. Safe to use from any thread, and several processes may add
    to one file. A context manager that closes itself.

    The file holds the users' texts, as token ids: whoever has the tokenizer can read them. A new one is the owner's alone to
    read.
    """

    def __init__(self, path: Path, vocab_size: int, model: str = "", tokenizer: str | None = None) -> None:
        """Opens ``path`` to add to it, and makes it if need be. The others: as in ``Recording``, of all generations to come.

        Raises:
            InvalidArgument, NotFound, PermissionDenied: as ``require_recordable``.
        """
        require_recordable(path)
        self.path = path
        self._facts = vocab_size, model, tokenizer
        self._lock = threading.Lock()
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        except OSError as error:
            raise _refused(path, error) from error

    def add(self, generation: Generation, group: str = "") -> bool:
        """Whether ``generation`` is now in the file: it is not if it was cancelled or failed.

        Raises:
            PermissionDenied: the file is closed or cannot be written; no part of the line is in it.
        """
        if generation.stats.finish not in FINISHED:
            return False
        recording = Recording.of(generation, *self._facts, group)
        line = json.dumps(recording.to_dict(), separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._file < 0:
                raise PermissionDenied(f"record {self.path}: it is closed; make another Recorder")
            try:
                self._append(line)
            except OSError as error:
                raise _refused(self.path, error) from error
        return True

    def close(self) -> None:
        """Calling it again does nothing."""
        with self._lock:
            file, self._file = self._file, -1
            if file >= 0:
                os.close(file)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            before = os.fstat(self._file).st_size
            rest = memoryview(line)
            try:
                while rest:
                    rest = rest[os.write(self._file, rest) :]
            except BaseException:  # a full disk, or Ctrl-C: half a line would spoil those behind it
                os.ftruncate(self._file, before)
                raise
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def opened_recorder(
    path: Path | None, target: Target, model: str
) -> contextlib.AbstractContextManager[Recorder | None]:
    """The recorder that adds texts of ``target`` to ``path``; None without a path.

    Args:
        model: the target's folder or hub name, which holds its tokenizer.
    """
    if path is None:
        return contextlib.nullcontext()
    tokenizer = None if target.tokenizer is None else fingerprint(load_tokenizer(model))
    return Recorder(path, target.vocab_size, Path(model).absolute().name, tokenizer)


def require_recordable(path: Path) -> None:
    """Nothing, if recordings can be added to ``path``; nothing is made or changed.

    Raises:
        InvalidArgument: a compressed file, or one that holds anything but recordings in whole lines.
        NotFound: its folder is not there.
        PermissionDenied: it cannot be read.
    """
    if path.suffix in (".zst", ".gz"):
        raise InvalidArgument(f"record {path}: lines cannot be added to a compressed file; name a .jsonl file")
    if not path.absolute().parent.is_dir():
        raise NotFound(f"record {path}: there is no such folder; name a file in a folder that exists")
    try:
        with path.open("rb") as file:
            begin = file.readline()
            last = b"\n" if not begin else _last(file.fileno())
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refused(path, error) from error
    if begin and not begin.startswith(b'{"recording":'):
        raise InvalidArgument(f"record {path}: it holds something else than recordings; name another file")
    if last != b"\n":
        raise InvalidArgument(f"record {path}: its last line is not whole; take that line out, or name another file")


def _last(file: int) -> bytes:
    return os.pread(file, 1, os.fstat(file).st_size - 1)


def _refused(path: Path, error: OSError) -> PermissionDenied:
    return PermissionDenied(f"record {path}: cannot be written ({error.strerror}); name another file")
