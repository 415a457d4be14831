"""Builds infini-gram's index over a datastore's tokens, with the package's own command in a separate process."""

from __future__ import annotations

import importlib
import json
import os
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.benchmarks.folder import make_folder, writing
from suffolk.benchmarks.processes import run_watched
from suffolk.benchmarks.report import missing
from suffolk.datastore.datastore import Datastore
from suffolk.datastore.errors import Unsupported
from suffolk.datastore.segment import separator, token_dtype

MEMORY_GIB = 8
FACTS = "facts.json"
LEAST_PART = 10_000_000


def cached_index(store: Datastore, workdir: Path) -> tuple[Path, dict[str, Any]]:
    """Return the index over ``store`` in ``workdir``, and the cost of building it.

    An index of the same generation is reused.

    Raises:
        Unsupported: infini-gram is not installed, or the datastore's tokens are wider than 2 bytes.
        Internal: the package failed to build it.
        ResourceExhausted: the folder cannot be written.
    """
    require_package()
    if token_dtype(store.manifest.vocab_size) != np.uint16:
        raise Unsupported(
            f"{store.path} stores ids in 4 bytes; infini-gram takes 2, so use a datastore of at most 65,535 ids"
        )
    checksums = [segment.checksum for segment in store.manifest.files()]
    folder = workdir / "infini-gram"
    facts = folder / FACTS
    with writing(folder):
        if facts.is_file():
            built: dict[str, Any] = json.loads(facts.read_text())
            if built["checksums"] == checksums:
                return folder, {**built, "reused": True}
        shutil.rmtree(folder, ignore_errors=True)
        _write_tokens(store, make_folder(folder).absolute())
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    command = [sys.executable, "-m", "infini_gram.indexing", "--token_dtype", "u16"]
    command += ["--data_dir", str(folder.absolute()), "--save_dir", str(folder.absolute())]
    command += ["--mem", str(MEMORY_GIB), "--cpus", str(_parts(folder)), "--ulimit", str(most_files)]
    watched = run_watched(command)
    size = sum(file.stat().st_size for file in folder.iterdir())
    built = {
        "checksums": checksums,
        "seconds": watched.seconds,
        "cpu_seconds": watched.cpu_seconds,
        "peak_bytes": watched.peak_bytes,
        "bytes": size,
    }
    with writing(facts):
        facts.write_text(json.dumps(built))
    return folder, {**built, "reused": False}


def open_engine(folder: Path) -> Any:
    """Return infini-gram's engine over an index; ``count(input_ids=...)`` returns a dictionary with ``count``."""
    engine = importlib.import_module("infini_gram.engine").InfiniGramEngine
    return engine(index_dir=str(folder), eos_token_id=0, token_dtype="u16")


def require_package() -> None:
    """Check before a long run that the package is installed.

    Raises:
        Unsupported: the package is not installed.
    """
    try:
        importlib.import_module("infini_gram.engine")
    except ImportError as error:
        raise missing("infini-gram") from error


def _parts(folder: Path) -> int:
    """Number of parts that the package may cut the tokens into.

    Parts overlap by 100,000 bytes. If a part is smaller than this, the package counts occurrences twice.
    """
    return min(os.cpu_count() or 1, 1 + (folder / "tokenized.0").stat().st_size // LEAST_PART)


def _write_tokens(store: Datastore, folder: Path) -> None:
    """Write tokens and document offsets in the package's format: a separator before each document."""
    dtype = token_dtype(store.manifest.vocab_size)
    mark = np.array([separator(dtype)], dtype).tobytes()
    offsets, place = [], 0
    with open(folder / "tokenized.0", "wb") as file:
        for document in store.documents():
            content = mark + document.tokens.astype(dtype).tobytes()
            file.write(content)
            offsets.append(place)
            place += len(content)
    np.array(offsets, np.uint64).tofile(folder / "offset.0")
