"""Finds the files of a corpus by name, folder or pattern."""

from __future__ import annotations

import glob
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NoReturn

from suffolk.build_index.options import BuildOptions
from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.datastore.file_systems import is_storage_url
from suffolk.datastore.remote_files import find_files, open_url

ENDINGS = {
    ".jsonl": "lines",
    ".jsonl.gz": "lines-gz",
    ".jsonl.zst": "lines-zst",
    ".parquet": "parquet",
    ".npy": "npy",
    ".bin": "bin",
}
"""Ending of a file's name -> kind; every other file is plain text."""

TOKEN_KINDS = ("npy", "bin")
RECORD_KINDS = ("lines", "lines-gz", "lines-zst", "parquet")
PATTERN = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of a corpus.

    Attributes:
        path: path or URL.
        kind: a value of ENDINGS, or "text".
        size: bytes on disk.
        modified_ns: time of the last change; for a URL a number that changes with the file.
        named: whether the user gave this path. A named file must not be skipped.
    """

    path: str
    kind: str
    size: int
    modified_ns: int
    named: bool

    def open(self) -> BinaryIO:
        """The content, from its start. Raises OSError; for a URL SuffolkError, also while it is read."""
        return open_url(self.path) if is_storage_url(self.path) else open(self.path, "rb")


@dataclass(frozen=True, slots=True)
class Inputs:
    """The files of a corpus in reading order, and the number of skipped files by reason."""

    files: tuple[InputFile, ...]
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def size(self) -> int:
        """Bytes of all files as they lie on disk."""
        return sum(file.size for file in self.files)

    def identity(self, count: int) -> str:
        """SHA-256 (hex) of the names, sizes and modification times of the first ``count`` files."""
        digest = hashlib.sha256()
        for file in self.files[:count]:
            digest.update(
                f"{file.path}\0{file.kind}\0{file.size}\0{file.modified_ns}\n".encode("utf-8", "surrogateescape")
            )
        return digest.hexdigest()


def find_inputs(options: BuildOptions) -> Inputs:
    """All files of the corpora. Folders are read in the order of names, without hidden files and linked folders.

    Raises:
        NotFound: a file or folder does not exist, or a pattern matches nothing.
        InvalidArgument: a folder cannot be read, there is no file, or an option applies to none of the files.
        Unavailable, PermissionDenied, Unsupported: a URL cannot be read.
    """
    skipped: Counter[str] = Counter()
    files: list[InputFile] = []
    seen: set[object] = set()
    for corpus in options.corpora:
        find = _find_remote if is_storage_url(corpus) else _find_local
        for identity, file in find(corpus, options, skipped):
            if identity in seen:
                skipped["given twice"] += 1
                continue
            seen.add(identity)
            files.append(file)
    if not files:
        left_out = ", ".join(f"{count} {reason}" for reason, count in skipped.items() if count) or "no files at all"
        raise InvalidArgument(
            f"corpus {' '.join(options.corpora)}: nothing to read ({left_out}); name files that hold text"
        )
    _require_use(options, {file.kind for file in files})
    return Inputs(tuple(files), skipped)


def _require_use(options: BuildOptions, kinds: set[str]) -> None:
    """Refuse an option that acts on none of the files. A Parquet file counts as tokenized, because it may hold token ids."""
    for name, value, acts_on in (
        ("end of document", options.end_of_document, (*TOKEN_KINDS, "parquet")),
        ("token format", options.token_format, ("bin",)),
        ("records", None if options.records == "auto" else options.records, RECORD_KINDS),
    ):
        if value is not None and kinds.isdisjoint(acts_on):
            raise InvalidArgument(
                f"{name}: {value} has no effect: no corpus is a {' or '.join(_ending(kind) for kind in acts_on)} file; "
                f"leave --{name.replace(' ', '-')} out, or name {'tokenized corpora' if name != 'records' else 'records'}"
            )


def _ending(kind: str) -> str:
    return next(ending for ending, each in ENDINGS.items() if each == kind)


def recognise(path: str) -> str:
    """The kind of a file, by its name alone."""
    lower = path.lower()
    return next((kind for ending, kind in ENDINGS.items() if lower.endswith(ending)), "text")


def _find_remote(corpus: str, options: BuildOptions, skipped: Counter[str]) -> Iterator[tuple[object, InputFile]]:
    """The files at a URL, each with what distinguishes it from all others."""
    files, named = find_files(corpus)
    for file in files:
        kind = recognise(file.url)
        if kind in TOKEN_KINDS and named:
            raise InvalidArgument(
                f"corpus {file.url}: an array of tokens is mapped into memory; copy the file to disk, and name that"
            )
        if kind in TOKEN_KINDS:
            skipped["token arrays in storage (copy them to disk)"] += 1
        elif not named and options.extensions and not file.url.lower().endswith(_endings(options.extensions)):
            skipped["other extension"] += 1
        else:
            yield file.url, InputFile(file.url, kind, file.size, file.version, named)


def _find_local(corpus: str, options: BuildOptions, skipped: Counter[str]) -> Iterator[tuple[object, InputFile]]:
    """The files on disk, each with what distinguishes it from all others."""
    for path, named in _expand(corpus, options, skipped):
        status = os.stat(path)
        file = InputFile(path, recognise(path), status.st_size, status.st_mtime_ns, named)
        yield (status.st_dev, status.st_ino), file


def _expand(corpus: str, options: BuildOptions, skipped: Counter[str]) -> Iterator[tuple[str, bool]]:
    if os.path.isdir(corpus):
        yield from ((path, False) for path in _walk(corpus, options, skipped))
    elif os.path.isfile(corpus):
        yield corpus, True
    elif PATTERN & set(corpus):
        matches = sorted(glob.glob(corpus, recursive=True))
        if not matches:
            raise NotFound(f"corpus {corpus}: the pattern matches no file; check it, and quote it against the shell")
        for match in matches:
            yield from _expand_match(match, corpus, options, skipped)
    elif os.path.exists(corpus):
        raise InvalidArgument(f"corpus {corpus}: neither a file nor a folder; name a file or a folder")
    else:
        raise NotFound(f"corpus {corpus}: no such file or folder; check the name")


def _expand_match(match: str, pattern: str, options: BuildOptions, skipped: Counter[str]) -> Iterator[tuple[str, bool]]:
    if os.path.isfile(match):
        yield match, True
    elif os.path.isdir(match) and "**" not in pattern:  # "**" also matches the files inside folders
        yield from ((path, False) for path in _walk(match, options, skipped))


def _walk(folder: str, options: BuildOptions, skipped: Counter[str]) -> Iterator[str]:
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        skipped["hidden"] += sum(name.startswith(".") for name in (*folders, *names))
        seen = sorted(name for name in folders if not name.startswith(".") and not _is_store(parent, name, options))
        folders[:] = [name for name in seen if not os.path.islink(os.path.join(parent, name))]
        skipped["linked folder (name it)"] += len(seen) - len(folders)  # links may form cycles
        for name in sorted(names):
            path = os.path.join(parent, name)
            if name.startswith("."):
                continue
            if not os.path.isfile(path):
                skipped["not a regular file"] += 1
            elif options.extensions and not name.lower().endswith(_endings(options.extensions)):
                skipped["other extension"] += 1
            elif recognise(path) in TOKEN_KINDS and not _takes_tokens(options):
                skipped["token arrays in a folder (name them, or give --end-of-document)"] += 1
            else:
                yield path


def _refuse(error: OSError) -> NoReturn:
    raise read_error(error.filename, error) from error


def _is_store(parent: str, name: str, options: BuildOptions) -> bool:
    """Whether a folder is the output datastore, which a build must not read."""
    return os.path.abspath(os.path.join(parent, name)) == os.path.abspath(options.output)


def _endings(extensions: Sequence[str]) -> tuple[str, ...]:
    return tuple(ending.lower() if ending.startswith(".") else f".{ending.lower()}" for ending in extensions)


def _takes_tokens(options: BuildOptions) -> bool:
    """Whether .npy and .bin files in folders are read.

    They are skipped unless tokens are expected, because source trees hold other arrays.
    """
    return options.tokenizer is None or options.token_format is not None or options.end_of_document is not None


def read_error(path: str | Path, error: OSError) -> NotFound | InvalidArgument:
    """The error for a corpus file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return NotFound(f"corpus {path}: the file is gone; check the name, and leave corpora alone during a build")
    return InvalidArgument(
        f"corpus {path}: cannot be read ({error.strerror or error}); check the file and its permissions"
    )
