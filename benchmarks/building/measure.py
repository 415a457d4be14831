"""Measures time and memory of building a datastore, compared to draftretriever's writer fed one document at a time."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from suffolk.benchmarks.building import one_document_build
from suffolk.benchmarks.building.sorting import measure_sorting, read_tokens, require_yardstick
from suffolk.benchmarks.datastore_options import BuildingOptions
from suffolk.benchmarks.folder import new_folder
from suffolk.benchmarks.plot import Panel
from suffolk.benchmarks.processes import Watched, helper_command, run_watched
from suffolk.benchmarks.retrieval.draftretriever_package import require_package
from suffolk.build_index.inputs import find_inputs
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.progress import tracked
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.segment import token_dtype
from suffolk.datastore.text_table import Table
from suffolk.datastore.tokenizer import load_tokenizer

OURS = "suffolk build"
RIVAL = "one document at a time, draftretriever's writer"
PACKAGES = ("numpy", "tokenizers", "kitoken", "draftretriever", "pydivsufsort", "matplotlib")
HEADERS = ("", "seconds", "processor s", "text MB/s", "tokens", "peak MB", "largest process MB")
NOTES = (
    "time: wall time of the whole process, with the files already in the page cache; MB: 10^6 bytes of UTF-8 text",
    "peak memory: sum over the builder and its workers, including mapped files; a shared page counts once per process",
    "one document at a time uses one core, suffolk build uses all cores it is given; processor seconds compare the "
    "work",
    "sorting: pydivsufsort sorts the same tokens as big-endian bytes on one thread; runs alternate; times are "
    "medians; the order is checked at 200,000 random ranks",
    "the published draftretriever stores statistics of short token runs, which is less work than sorting suffixes",
)


def measure_building(options: BuildingOptions) -> dict[str, Any]:
    """Run both builders ``rounds`` times in turn, then the sorts; return the results by name. Each run has its own process.

    Raises:
        NotFound, InvalidArgument: a corpus is missing.
        Unsupported: draftretriever or pydivsufsort is not installed.
        Internal: a process failed, or an order is wrong.
        ResourceExhausted: ``workdir`` cannot be created or written.
    """
    require_package()
    load_tokenizer(options.tokenizer)  # check the options before processes are started
    if options.sort_tokens:
        require_yardstick()
    read = _read_all(options)
    with new_folder(options.workdir) as folder:
        runs = _build_in_turn(folder, options)
        equal, documents = one_document_build.count_equal(folder / "digests", folder / "store")
        sorting = _measure_sorting(folder, options) if options.sort_tokens else None
    rates = {name: median(run["text_bytes_per_second"] for run in each) for name, each in runs.items()}
    return {
        "bytes_on_disk": read,
        "runs": runs,
        "median_text_bytes_per_second": rates,
        "times_faster": rates[OURS] / rates[RIVAL],
        "peak_bytes": {name: max(run["peak_bytes"] for run in each) for name, each in runs.items()},
        "documents": documents,
        "documents_with_equal_ids": equal,
        "sorting": sorting,
    }


def _build_in_turn(folder: Path, options: BuildingOptions) -> dict[str, list[dict[str, Any]]]:
    """Results of each builder in each round. The last index of each builder stays in ``folder``."""
    runs: dict[str, list[dict[str, Any]]] = {OURS: [], RIVAL: []}
    ways = {OURS: _build_ours, RIVAL: _build_rival}
    turns = [name for number in range(options.rounds) for name in (list(ways) if number % 2 == 0 else list(ways)[::-1])]
    for name, run in tracked(((name, ways[name](options, folder)) for name in turns), len(turns), "builds"):
        runs[name].append(run)
    return runs


def _measure_sorting(folder: Path, options: BuildingOptions) -> dict[str, Any] | None:
    """Measure the sorts on the new datastore's tokens; None if the tokens are too wide for pydivsufsort."""
    with open_datastore(folder / "store") as store:
        manifest = store.manifest
        if token_dtype(manifest.vocab_size) != np.uint16:
            return None
        tokens = read_tokens(store, max(options.sort_tokens))
    return measure_sorting(tokens, folder, options, manifest)


def _read_all(options: BuildingOptions) -> int:
    """Read every file into the page cache, so that no builder waits for the disk; return their size in bytes."""
    asked = BuildOptions(
        options.corpora, Path("unused"), options.tokenizer, extensions=options.extensions, threads=options.threads
    )
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
    paths = {"index": str(folder / "draftretriever.idx"), "digests": str(folder / "digests")}
    return _outcome(run_watched(helper_command(one_document_build.build, **paths, **settings)))


def _outcome(watched: Watched) -> dict[str, Any]:
    reported: dict[str, Any] = json.loads(watched.output)
    return {
        "seconds": watched.seconds,
        "cpu_seconds": watched.cpu_seconds,
        "peak_bytes": watched.peak_bytes,
        "largest_process_bytes": watched.largest_bytes,
        "text_bytes": reported["text_bytes"],
        "tokens": reported["tokens"],
        "text_bytes_per_second": reported["text_bytes"] / watched.seconds,
        "reported": reported,
    }


def tables(results: dict[str, Any]) -> list[str | Table]:
    """The table, with facts about it."""
    rows = [
        [
            f"{name}, run {number}",
            run["seconds"],
            run["cpu_seconds"],
            run["text_bytes_per_second"] / 1e6,
            run["tokens"],
            run["peak_bytes"] / 1e6,
            run["largest_process_bytes"] / 1e6,
        ]
        for name, runs in results["runs"].items()
        for number, run in enumerate(runs, 1)
    ]
    text = next(iter(results["runs"].values()))[0]["text_bytes"]
    return [
        f"{text / 1e6:,.1f} MB of text in {results['documents']:,} documents",
        Table(HEADERS, rows),
        f"suffolk build is {results['times_faster']:.1f} times as fast (medians)",
        f"documents with equal token ids: {results['documents_with_equal_ids']:,} of {results['documents']:,} "
        f"documents",
        *_sorting_parts(results["sorting"]),
    ]


def plots(results: dict[str, Any]) -> list[Panel]:
    """Plot text throughput and memory."""
    rates, peaks = results["median_text_bytes_per_second"], results["peak_bytes"]
    labels = [name.replace(", ", ",\n") for name in rates]
    panels = [
        Panel("throughput", "MB of text a second", labels, {"median": [rate / 1e6 for rate in rates.values()]}),
        Panel("peak memory", "MB resident", labels, {"peak": [peak / 1e6 for peak in peaks.values()]}),
    ]
    if sorting := results["sorting"]:
        for name, found in sorting["inputs"].items():
            ways = found["tokens_per_second"]
            rates = {"median": [rate / 1e6 for rate in ways.values()]}
            panels.append(
                Panel(f"sorting {name}", "million tokens a second", [way.replace(", ", ",\n") for way in ways], rates)
            )
    return panels


def _sorting_parts(sorting: dict[str, Any] | None) -> list[str | Table]:
    if sorting is None:
        return []
    rows = [
        [f"{name}: {way}", median(found["seconds"][way]), rate / 1e6, found["times_the_yardstick"].get(way)]
        for name, found in sorting["inputs"].items()
        for way, rate in found["tokens_per_second"].items()
    ]
    memory = sorting["segment_memory"]
    return [
        "",
        Table(("sorting", "seconds", "million tokens/s", "times pydivsufsort"), rows),
        f"a segment of {memory['tokens']:,} tokens: {memory['bytes_per_token']:.2f} bytes of memory a token at most "
        f"({memory['planned_bytes'] / memory['tokens']:.2f} planned), {memory['file_bytes'] / memory['tokens']:.3f} on disk",
    ]
