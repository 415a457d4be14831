"""Finds the files of a corpus by name, folder or pattern. Leaves out datastores and table formats such as Delta."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn

from suffolk.build_index.form import NO_TEXT_AT_ALL, Form, find_form
from suffolk.build_index.input_file import RECORD_KINDS, TOKEN_KINDS, InputFile, read_error, read_start, without_ending
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.skipped import Skipped, skipped_line
from suffolk.datastore.errors import Field, InvalidArgument, NotFound
from suffolk.datastore.file_systems import FORMS as URL_FORMS
from suffolk.datastore.file_systems import is_storage_url
from suffolk.datastore.manifest import MANIFEST_NAME, SEGMENTS_NAME
from suffolk.datastore.remote_files import find_files, read_head

KIND_NAMES = {"npy": ".npy", "bin": ".bin", "parquet": ".parquet", "arrow": ".arrow"}
KIND_NAMES |= {"lines": "JSON lines", "array": "JSON array", "packed": "compressed"}
PATTERN = frozenset("*?[")
HUB_CACHE, HUB_COPIES = {"blobs", "snapshots"}, {"blobs", "refs"}
"""Folders of a model or data set in the hub's local cache; ``HUB_COPIES`` hold the snapshots' files without their names."""
NO_FILE = "not a regular file"
NO_FILES = "folder without files"
LINKED = "linked folder (name it)"
EXAMPLES = 3
"""Files that a summary names for each reason."""
FORMS = "text, JSON lines, JSON arrays, Parquet, Arrow, .npy or .bin files"
REMOTE_STARTS = 32
"""Files in storage whose first bytes are read at the same time."""
DATASTORE = "datastore"
PUSHED_NAME = "generations"
"""Folder that every pushed datastore contains."""

_LOG_FOLDERS = {"_delta_log": "Delta", ".hoodie": "Hudi"}
_ICEBERG = "metadata", "*.metadata.json"
_LOG_AT_URL = re.compile(r"(.*/)(?:(_delta_log)/.*|metadata/[^/]*\.metadata\.json)")

_STORE_AT_URL = re.compile(rf"(.*/)(?:({SEGMENTS_NAME}|{PUSHED_NAME})/[^/]*|{re.escape(MANIFEST_NAME)})")


@dataclass(slots=True)
class Inputs:
    """The files of a corpus in reading order, and what is left out.

    Attributes:
        unread: files and folders that are left out, although they may hold text.
        passed_over: number of files that hold no text or that the options exclude, by reason.
        textless: files of JSON records without a text. They are left out, or read as plain text.
    """

    files: tuple[InputFile, ...]
    unread: list[Skipped] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)
    textless: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of all files as they lie on disk."""
        return sum(file.size for file in self.files)

    @property
    def skipped(self) -> Counter[str]:
        """Number of files that are left out, by reason."""
        return +self.passed_over + Counter(file.reason for file in self.unread)

    @property
    def examples(self) -> dict[str, list[str]]:
        """Reason -> the first paths of ``unread``."""
        found: dict[str, list[str]] = {}
        for file in self.unread:
            if len(paths := found.setdefault(file.reason, [])) < EXAMPLES:
                paths.append(file.place)
        return found

    def identity(self, count: int) -> str:
        """SHA-256 (hex) of the names, forms, sizes and modification times of the first ``count`` files."""
        digest = hashlib.sha256()
        for file in self.files[:count]:
            facts = f"{file.path}\0{file.kind}\0{file.packing}\0{file.size}\0{file.modified_ns}\n"
            digest.update(facts.encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


def find_inputs(options: BuildOptions) -> Inputs:
    """All files of the corpora. Folders are read in the order of names, without hidden files and linked folders.

    Raises:
        NotFound: a file or folder does not exist, or a pattern matches nothing.
        InvalidArgument: a named file is of a form that is not read, a folder cannot be read, there is no file, or an option
            applies to none of the files. Also: most of the bytes are in JSON records and tables without a text. With
            ``options.strict`` also: a file is left out that may hold text.
        Unavailable, PermissionDenied, Unsupported: a URL cannot be read.
        Corruption: a table is damaged, and ``options.on_error`` is "stop".
    """
    inputs = Inputs(())
    files: list[InputFile] = []
    seen: set[object] = set()
    textless: list[tuple[InputFile, str]] = []
    for corpus in options.corpora:
        find = _find_remote if is_storage_url(corpus) else _find_local
        for identity, file, form in find(corpus, options, inputs, seen):
            seen.add(identity)
            if form.lacks:
                textless.append((file, form.lacks))
            if form.problem in NO_TEXT_AT_ALL:
                inputs.passed_over[form.problem] += 1
            elif form.problem and file.named:
                reason = form.lacks or f"corpus {file.path}: {form.problem}, which is not read; name {FORMS}"
                raise InvalidArgument(reason)
            elif form.problem:
                inputs.unread.append(Skipped(file.path, form.problem))
            else:
                files.append(replace(file, kind=form.kind, packing=form.packing))
    inputs.files = tuple(files)
    inputs.textless = [file.path for file, _ in textless]
    _require_texts(inputs, options, textless)
    _require_use(options, {file.kind for file in files} | {"packed" for file in files if file.packing})
    return inputs


def _require_texts(inputs: Inputs, options: BuildOptions, textless: Sequence[tuple[InputFile, str]]) -> None:
    """Refuse corpora without files, with mostly records without a text, or with files that ``options.strict`` refuses."""
    left_out = skipped_line(inputs.skipped, inputs.examples)
    if options.strict and inputs.unread:
        raise InvalidArgument(
            Field("strict"),
            f": {left_out}; convert or remove such files, choose others with --extensions, or leave --strict out",
        )
    lacking = set(inputs.textless)
    others = sum(file.size for file in inputs.files if file.path not in lacking)
    if textless and sum(file.size for file, _ in textless) > others:
        raise InvalidArgument(textless[0][1])
    if not inputs.files:
        raise InvalidArgument(
            f"corpus {' '.join(options.corpora)}: nothing to read ({left_out}); name files that hold text"
        )


def is_table(path: str) -> bool:
    """Whether the name is of a file with rows in CSV, perhaps compressed."""
    return without_ending(path).endswith((".csv", ".tsv"))


def _require_use(options: BuildOptions, kinds: set[str]) -> None:
    """Refuse an option that acts on none of the files. A Parquet file counts as tokenized, because it may hold token ids."""
    for name, value, unset, acts_on in (
        ("end of document", options.end_of_document, None, (*TOKEN_KINDS, "parquet", "arrow")),
        ("token format", options.token_format, None, ("bin",)),
        ("records", options.records, "auto", RECORD_KINDS),
        ("text field", options.text_field, "text", RECORD_KINDS),
        ("id field", options.id_field, None, RECORD_KINDS),
        ("metadata", ",".join(options.metadata), "", RECORD_KINDS),
        ("on error", options.on_error, "stop", (*RECORD_KINDS, "packed")),
    ):
        if value != unset and kinds.isdisjoint(acts_on):
            raise InvalidArgument(
                f"{name}: {value} has no effect: no corpus is a {' or '.join(KIND_NAMES[kind] for kind in acts_on)} file; "
                f"leave --{name.replace(' ', '-')} out, or name {'tokenized corpora' if 'lines' not in acts_on else 'records'}"
            )


Found = tuple[object, InputFile, Form]
"""The identity of a file, the file, and its form."""


def _find_remote(corpus: str, options: BuildOptions, inputs: Inputs, seen: set[object]) -> Iterator[Found]:
    """The files at a URL."""
    files, named, hidden = find_files(corpus)
    inputs.passed_over["hidden"] += hidden
    urls = [remote.url for remote in files]
    folders = {} if named else stores_at(urls) | tables_at(urls)
    inputs.unread += [Skipped(folder, problem) for folder, problem in folders.items()]
    found: list[InputFile] = []
    for remote in (each for each in files if not each.url.startswith(tuple(folders))):
        if remote.url.endswith("/"):
            inputs.unread.append(Skipped(remote.url, "name that ends with a slash"))
        elif remote.url in seen:
            inputs.passed_over["given twice"] += 1
        elif not named and options.extensions and not remote.url.lower().endswith(_endings(options.extensions)):
            inputs.passed_over["other extension"] += 1
        else:
            found.append(InputFile(remote.url, "text", "", remote.size, remote.version, named))
    with ThreadPoolExecutor(REMOTE_STARTS) as pool:
        forms = pool.map(partial(_find_remote_form, options), found)
        for file, form in zip(found, forms, strict=True):
            if form.kind in TOKEN_KINDS and named:
                raise InvalidArgument(
                    f"corpus {file.path}: an array of tokens is mapped into memory; copy the file to disk, and name that"
                )
            if form.kind in TOKEN_KINDS:
                form = Form("", problem="token array in storage (copy it to disk)")
            yield file.path, file, form


def _find_remote_form(options: BuildOptions, file: InputFile) -> Form:
    return find_form(file.path, lambda size: read_head(file.path, min(size, file.size)), options)


def _find_local(corpus: str, options: BuildOptions, inputs: Inputs, seen: set[object]) -> Iterator[Found]:
    """The files on disk."""
    for path, named in _expand(corpus, options, inputs):
        try:
            status = os.stat(path)
            identity = status.st_dev, status.st_ino
            if identity in seen:
                inputs.passed_over["given twice"] += 1
                continue
            form = find_form(path, partial(read_start, path), options)
        except OSError as error:
            raise read_error(path, error) from error
        if form.kind in TOKEN_KINDS and not named and not _takes_tokens(options):
            form = Form("", problem="token array in a folder (name it, or give --end-of-document)")
        yield identity, InputFile(path, "text", "", status.st_size, status.st_mtime_ns, named), form


def _expand(corpus: str, options: BuildOptions, inputs: Inputs) -> Iterator[tuple[str, bool]]:
    if os.path.isdir(corpus):
        yield from ((path, False) for path in _walk_some(corpus, options, inputs))
    elif os.path.isfile(corpus):
        yield corpus, True
    elif PATTERN & set(corpus):
        try:
            matches, linked = expand_pattern(corpus)
        except OSError as error:
            _refuse(error)
        inputs.unread += [Skipped(folder, LINKED) for folder in linked]
        if not matches:
            raise NotFound(f"corpus {corpus}: the pattern matches no file; check it, and quote it against the shell")
        for match in matches:
            yield from _expand_match(match, corpus, options, inputs)
    elif os.path.exists(corpus):
        raise InvalidArgument(f"corpus {corpus}: neither a file nor a folder; name a file or a folder")
    elif "://" in corpus:
        raise InvalidArgument(f"corpus {corpus}: no URL that can be read; download it, or give {URL_FORMS}")
    else:
        raise NotFound(f"corpus {corpus}: no such file or folder; check the name")


def _expand_match(match: str, pattern: str, options: BuildOptions, inputs: Inputs) -> Iterator[tuple[str, bool]]:
    if os.path.isfile(match):
        yield match, True
    elif not os.path.isdir(match):
        inputs.unread.append(Skipped(match, NO_FILE))
    elif os.path.isdir(match) and "**" not in pattern:  # "**" also matches the files inside folders
        yield from ((path, False) for path in _walk(match, options, inputs))


def _walk_some(folder: str, options: BuildOptions, inputs: Inputs) -> Iterator[str]:
    """The same as ``_walk``, but a folder without files is recorded as unread."""
    before, is_empty = inputs.skipped, True
    for path in _walk(folder, options, inputs):
        is_empty = False
        yield path
    if is_empty and {**inputs.skipped, "hidden": 0} == {**before, "hidden": 0}:
        inputs.unread.append(Skipped(folder, NO_FILES))


def _walk(folder: str, options: BuildOptions, inputs: Inputs) -> Iterator[str]:
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        if problem := table_problem(parent, folders):
            inputs.unread.append(Skipped(parent, problem))
        elif is_store(folders, names):
            inputs.unread.append(Skipped(parent, problem := DATASTORE))
        if problem:
            folders[:] = []
            continue
        inputs.passed_over["hidden"] += sum(name.startswith(".") for name in (*folders, *names))
        if set(folders) >= HUB_CACHE:
            folders[:] = set(folders) - HUB_COPIES
        seen = sorted(name for name in folders if not name.startswith(".") and not _is_store(parent, name, options))
        folders[:] = [name for name in seen if not os.path.islink(os.path.join(parent, name))]
        for name in (name for name in seen if name not in folders):  # links may form cycles
            inputs.unread.append(Skipped(os.path.join(parent, name), LINKED))
        for name in sorted(names):
            path = os.path.join(parent, name)
            if name.startswith("."):
                continue
            if not os.path.isfile(path):
                inputs.unread.append(Skipped(path, NO_FILE))
            elif options.extensions and not name.lower().endswith(_endings(options.extensions)):
                inputs.passed_over["other extension"] += 1
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


def expand_pattern(pattern: str) -> tuple[list[str], list[str]]:
    """The names that ``pattern`` matches, and the linked folders that ``**`` did not enter because links may form cycles.

    Raises OSError if a folder below ``**`` cannot be listed.
    """
    linked: set[str] = set()
    return sorted(set(_matches(pattern, linked))), sorted(linked)


def _matches(pattern: str, linked: set[str]) -> Iterator[str]:
    parts = pattern.split(os.sep)
    if "**" not in parts:
        yield from glob.iglob(pattern)
        return
    place = parts.index("**")
    start, rest = "".join(part + os.sep for part in parts[:place]), os.sep.join(parts[place + 1 :] or "*")
    for base in glob.iglob(start) if start else ("",):
        for folder in _folders(base, linked):
            yield from _matches(glob.escape(folder) + rest, linked)


def _folders(folder: str, linked: set[str]) -> Iterator[str]:
    """``folder`` and the folders below it, without hidden ones. ``folder`` is empty or ends with a separator."""
    yield folder
    with os.scandir(folder or os.curdir) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".")]
    for path in (folder + name for name in names):
        if os.path.islink(path) and os.path.isdir(path):
            linked.add(path)
        elif os.path.isdir(path):
            yield from _folders(path + os.sep, linked)


def table_problem(parent: str, folders: Iterable[str]) -> str:
    """Return why the files of ``parent``, a folder with ``folders``, are not read. Empty if ``parent`` is no table."""
    name = next((_LOG_FOLDERS[each] for each in folders if each in _LOG_FOLDERS), "")
    if not name and _ICEBERG[0] in folders and glob.glob(os.path.join(glob.escape(parent), *_ICEBERG)):
        name = "Iceberg"
    return _table_problem(name) if name else ""


def tables_at(urls: Iterable[str]) -> dict[str, str]:
    """Find the folders of tables among files at ``urls``, each with the reason why its files are not read."""
    found = filter(None, map(_LOG_AT_URL.fullmatch, urls))
    return {log[1]: _table_problem(_LOG_FOLDERS.get(log[2], "Iceberg")) for log in found}


def stores_at(urls: Iterable[str]) -> dict[str, str]:
    """Find the folders of datastores among files at ``urls``, each with the reason ``DATASTORE``."""
    folders: dict[str, set[str]] = {"segments": set(), "other": set()}
    for found in filter(None, map(_STORE_AT_URL.fullmatch, urls)):
        folders["segments" if found[2] == SEGMENTS_NAME else "other"].add(found[1])
    return dict.fromkeys(folders["segments"] & folders["other"], DATASTORE)


def is_store(folders: Iterable[str], names: Iterable[str]) -> bool:
    """Whether a folder with these ``folders`` and files is a datastore, perhaps a pushed one."""
    return SEGMENTS_NAME in folders and (MANIFEST_NAME in names or PUSHED_NAME in folders)


def _table_problem(name: str) -> str:
    return f"{name} table, whose files also hold removed rows (export its rows, or name its files)"
