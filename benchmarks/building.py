"""How fast a datastore is built and with how much memory, beside one document at a time into draftretriever's writer."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import one_document_build
from benchmarks.draftretriever_package import require_package
from benchmarks.folder import make_folder
from benchmarks.watched_process import Watched, run_watched
from build_index.inputs import find_inputs
from build_index.options import BuildOptions
from datastore.errors import InvalidArgument

OURS = "suffolk build"
RIVAL = "one document at a time, draftretriever's writer"


@dataclass(frozen=True, slots=True)
class BuildingOptions:
    """Settings of ``suffolk bench build``. Checked when made.

    Attributes:
        corpora: files, folders or patterns with text, as for ``suffolk build``.
        tokenizer: Hugging Face folder, tokenizer.json or hub name.
        workdir: where both indexes are written; they are removed again.
        rounds: how often each is run, in turn.
        text_field, extensions, threads: as for ``suffolk build``.
    """

    corpora: tuple[str, ...]
    tokenizer: str
    workdir: Path
    rounds: int = 1
    text_field: str = "text"
    extensions: tuple[str, ...] = ()
    threads: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InvalidArgument(f"rounds is {self.rounds}; it must be 1 or more")


def measure_building(options: BuildingOptions) -> dict[str, Any]:
    """Run both ``rounds`` times in turn, each in a process of its own; the results by name.

    Raises:
        NotFound, InvalidArgument: a corpus is not there.
        Unsupported: draftretriever is not installed.
        Internal: one of them failed.
    """
    require_package()
    read = _read_all(options)
    folder = options.workdir / "build"
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    runs: dict[str, list[dict[str, Any]]] = {OURS: [], RIVAL: []}
    ways = {OURS: _build_ours, RIVAL: _build_rival}
    for number in range(options.rounds):
        for name in list(ways) if number % 2 == 0 else list(ways)[::-1]:
            runs[name].append(ways[name](options, folder))
    equal, documents = one_document_build.count_equal(folder / "digests", folder / "store")
    shutil.rmtree(folder)
    rates = {name: median(run["text_bytes_per_second"] for run in each) for name, each in runs.items()}
    return {
        "bytes_on_disk": read,
        "runs": runs,
        "median_text_bytes_per_second": rates,
        "times_faster": rates[OURS] / rates[RIVAL],
        "peak_bytes": {name: max(run["peak_bytes"] for run in each) for name, each in runs.items()},
        "documents": documents,
        "documents_with_equal_ids": equal,
    }


def _read_all(options: BuildingOptions) -> int:
    """Bring every file into the system's cache, so that neither way has to wait for the disk; their size."""
    asked = BuildOptions(options.corpora, Path("unused"), options.tokenizer, extensions=options.extensions)
    return sum(len(Path(file.path).read_bytes()) for file in find_inputs(asked).files)


def _build_ours(options: BuildingOptions, folder: Path) -> dict[str, Any]:
    store = folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    command = [sys.executable, "-m", "suffolk", "build", *options.corpora, "--output", str(store), "--json"]
    command += ["--tokenizer", options.tokenizer, "--text-field", options.text_field]
    command += ["--threads", str(options.threads)]
    command += ["--extensions", ",".join(options.extensions)] if options.extensions else []
    return _outcome(run_watched(command))


def _build_rival(options: BuildingOptions, folder: Path) -> dict[str, Any]:
    settings = {name: asdict(options)[name] for name in ("corpora", "tokenizer", "text_field", "extensions")}
    paths = [str(folder / "draftretriever.idx"), str(folder / "digests")]
    command = [sys.executable, "-m", one_document_build.__name__, *paths, json.dumps(settings)]
    return _outcome(run_watched(command))


def _outcome(watched: Watched) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(watched.output)
    return {
        "seconds": watched.seconds,
        "cpu_seconds": watched.cpu_seconds,
        "peak_bytes": watched.peak_bytes,
        "largest_process_bytes": watched.largest_bytes,
        "text_bytes": said["text_bytes"],
        "tokens": said["tokens"],
        "text_bytes_per_second": said["text_bytes"] / watched.seconds,
        "said": said,
    }
