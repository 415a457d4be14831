"""Measures insertion, memory and drafts of a live index, and of the suffix tree of arctic-inference in the same run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.benchmarks.datastore_options import LiveBenchOptions
from suffolk.benchmarks.live.indexes import (
    SUFFOLK,
    ArcticTree,
    GrowingIndex,
    LiveIndex,
    Pieces,
    drafts_by_segments,
    read_pieces,
)
from suffolk.benchmarks.parts import time_rounds
from suffolk.benchmarks.plot import Panel
from suffolk.benchmarks.processes import resident_memory
from suffolk.benchmarks.report import quantiles_us
from suffolk.build_index.progress import part_progress
from suffolk.datastore import _native
from suffolk.datastore.errors import Unsupported
from suffolk.datastore.text_table import Table

_CHUNK = 25
"""Contexts between two pauses of the drafting thread."""
PACKAGES = ("numpy", "arctic-inference", "matplotlib")
INSERTION = ("insertion", "tokens", "tokens/s", "tokens a CPU second", "bytes a token", "resident", "at the peak")
BYTES = ("bytes", "resident_bytes", "peak_bytes")
DRAFTS = ("drafts, microseconds", "p50", "p99", "nodes")
NOTES = (
    "tokens/s: documents appended one by one from one thread, merges in the background included; the indexes take turns",
    "bytes a token: by the index's own count; resident: growth of the process's memory; at the peak: during merges",
    "arctic-inference: its suffix tree at depth 24, with trees of up to max_nodes tokens and no least probability",
    "in C++: a lookup and a draft without the call from Python; contexts are from documents that are not appended",
    "segments: the same documents in this many segments, searched as one; falling: each has half of the documents that are left",
    "overhead of a document: all but its one token and that token's position",
)


def measure_live(options: LiveBenchOptions) -> dict[str, Any]:
    """Run the whole measurement; return the results by name.

    Raises:
        NotFound, Corruption: the datastore is missing or damaged.
        Unsupported: arctic-inference is selected, but not installed.
    """
    pieces = read_pieces(options)
    memory = {index.name: _fill(index, pieces, options) for index in _make(pieces, options)}
    indexes = list(_make(pieces, options))
    live = indexes[0]
    assert isinstance(live, LiveIndex)
    inserted = _insert(indexes, pieces, options)
    return {
        "documents": len(pieces.appended),
        "tokens": pieces.tokens,
        "vocab_size": pieces.vocab_size,
        "memory": memory,
        "insertion": inserted,
        "index": live.native.stats(),
        "drafts": _drafts(indexes, pieces, options.seed),
        "core": {
            "alone": _core(live, pieces, options),
            "while appending": _while_appending(live, pieces, options),
        },
        "segments": drafts_by_segments(pieces, options),
        "groups": _groups(pieces, options),
    }


def _make(pieces: Pieces, options: LiveBenchOptions) -> Iterator[GrowingIndex]:
    """Make empty indexes: the live index, then the suffix tree of arctic-inference if ``options`` selects it."""
    yield LiveIndex(pieces, options)
    if options.against:
        try:
            yield ArcticTree(options)
        except ImportError as error:
            raise Unsupported(
                f"arctic-inference cannot be imported ({error}); install it (make vllm does), or leave out --against"
            ) from error


def _limit(index: GrowingIndex, options: LiveBenchOptions) -> int:
    """The number of tokens to append to an index."""
    return options.tokens if index.name == SUFFOLK else min(options.tokens, options.rival_tokens)


def _fill(index: GrowingIndex, pieces: Pieces, options: LiveBenchOptions) -> dict[str, int]:
    """Append documents to an index, up to its limit of tokens. Return the bytes that the index counts itself, and the growth of
    the process's memory: at the end, and at its peak."""
    [part] = pieces.parts(1, _limit(index, options))
    with part_progress(len(part), f"documents in memory, {index.name}") as done:
        before = most = resident_memory()["anonymous"]
        for number, piece in enumerate(part):
            index.append(piece)
            if number % 64 == 0:
                most = max(most, resident_memory()["anonymous"])
                done(number)
    index.settle()
    now = resident_memory()["anonymous"]
    found = {
        "tokens": sum(map(len, part)),
        "bytes": index.bytes(),
        "resident_bytes": now - before,
        "peak_bytes": max(most, now) - before,
    }
    index.close()
    return found


def _insert(indexes: Sequence[GrowingIndex], pieces: Pieces, options: LiveBenchOptions) -> dict[str, Any]:
    """Append the documents in parts. In each turn every index gets one part.

    Returns for each index the tokens, the seconds, and the CPU seconds of all threads.
    """
    parts = [list(pieces.parts(options.turns, _limit(index, options))) for index in indexes]
    found = [{"tokens": 0, "seconds": 0.0, "cpu_seconds": 0.0} for _ in indexes]
    with part_progress(options.turns, "turns of insertion") as done:
        for turn in range(options.turns):
            for index, its_parts, total in zip(indexes, parts, found, strict=True):
                begin, cpu = time.perf_counter(), time.process_time()
                for piece in its_parts[turn] if turn < len(its_parts) else ():
                    index.append(piece)
                    total["tokens"] += len(piece)
                index.settle()
                total["seconds"] += time.perf_counter() - begin
                total["cpu_seconds"] += time.process_time() - cpu
            done(turn + 1)
    return {index.name: total for index, total in zip(indexes, found, strict=True)}


def _drafts(indexes: Sequence[GrowingIndex], pieces: Pieces, seed: int) -> dict[str, Any]:
    """Measure the latency of drafts from Python and their mean number of nodes. The indexes take turns."""
    drafts = {index.name: index.draft for index in indexes}
    seconds = time_rounds(drafts, pieces.contexts, 1, seed, alternating=True)
    return {
        index.name: quantiles_us(seconds[index.name])
        | {"nodes": float(np.mean(list(map(index.draft, pieces.contexts))))}
        for index in indexes
    }


def _core(live: LiveIndex, pieces: Pieces, options: LiveBenchOptions) -> dict[str, float]:
    """Measure the latency of a lookup plus a draft in C++."""
    taken: list[npt.NDArray[np.float64]] = []
    for begin in range(0, len(pieces.contexts), _CHUNK):
        chunk = pieces.contexts[begin : begin + _CHUNK]
        lookup, draft = live.native.clock(
            chunk, options.max_match, options.min_match, options.max_depth, options.max_nodes
        )
        taken.append(lookup + draft)
    return quantiles_us(np.concatenate(taken))


def _while_appending(live: LiveIndex, pieces: Pieces, options: LiveBenchOptions) -> dict[str, Any]:
    """Measure the latency of a lookup plus a draft in C++ while another thread appends documents at a fixed rate."""
    ended = threading.Event()
    appended = 0

    def append() -> None:
        nonlocal appended
        begin = time.perf_counter()
        while not ended.is_set():
            for piece in pieces.appended:
                ended.wait(max(0.0, begin + appended / options.rate - time.perf_counter()))
                if ended.is_set():
                    return
                live.append(piece)
                appended += len(piece)

    thread = threading.Thread(target=append)
    thread.start()
    begin = time.perf_counter()
    try:
        found = _core(live, pieces, options)
        while time.perf_counter() - begin < 2.0:  # long enough for merges
            found = _core(live, pieces, options)
    finally:
        ended.set()
        thread.join()
    return found | {"tokens_per_second": appended / (time.perf_counter() - begin)}


def _groups(pieces: Pieces, options: LiveBenchOptions) -> dict[str, float]:
    """Measure the overhead of one-token documents, each in its own group, and the latency of a draft from one group."""
    index = _native.LiveIndex(pieces.vocab_size, pieces.order_depth, 2)
    random = np.random.default_rng(options.seed)
    keys = random.integers(1, 1 << 63, options.groups).astype(np.uint64)
    ids = random.integers(0, pieces.vocab_size, options.groups).astype(np.uint32)
    one = (np.ones(1, np.uint64), [b""], np.zeros(1, np.int64))
    for place in range(options.groups):
        index.append(ids[place : place + 1], one[0], keys[place : place + 1], *one[1:])
    index.settle()
    size = index.stats()["bytes"]
    token = (2 if pieces.vocab_size <= 0xFFFF else 4) + 4  # a token and its position
    taken = []
    for place in random.integers(0, options.groups, min(options.groups, options.queries)):
        begin = time.perf_counter()
        index.draft([[int(ids[place])]], 4, 1, 4, [8], 1, keys[place : place + 1], "group")
        taken.append(time.perf_counter() - begin)
    index.close()
    return {"documents": options.groups, "bytes": size, "overhead_bytes": size / options.groups - token} | quantiles_us(
        taken
    )


def tables(results: dict[str, Any]) -> list[str | Table]:
    """The tables, with facts about them."""
    insertion = [
        (
            name,
            each["tokens"],
            each["tokens"] / each["seconds"],
            each["tokens"] / each["cpu_seconds"],
            *(results["memory"][name][field] / results["memory"][name]["tokens"] for field in BYTES),
        )
        for name, each in results["insertion"].items()
    ]
    drafts = [
        *(
            (f"{name}, from Python", each["p50_us"], each["p99_us"], each["nodes"])
            for name, each in results["drafts"].items()
        ),
        *(
            (f"{SUFFOLK}, in C++, {name}", each["p50_us"], each["p99_us"], None)
            for name, each in results["core"].items()
        ),
        *(
            (f"{SUFFOLK}, from Python, segments: {shape}", each["p50_us"], each["p99_us"], each["nodes"])
            for shape, each in results["segments"].items()
        ),
    ]
    index, groups = results["index"], results["groups"]
    return [
        f"{results['documents']:,} documents, {results['tokens']:,} tokens, vocabulary of {results['vocab_size']:,}",
        Table(INSERTION, insertion),
        f"{index['segments']} segments; each token was merged {index['merged_tokens'] / results['tokens']:.1f} times",
        Table(DRAFTS, drafts),
        f"appended meanwhile: {results['core']['while appending']['tokens_per_second']:,.0f} tokens/s",
        f"{groups['documents']:,} groups of one token: {groups['overhead_bytes']:.1f} bytes of overhead a document; "
        f"a group's draft takes {groups['p50_us']:.1f} us (p99 {groups['p99_us']:.1f}) from Python",
    ]


def plots(results: dict[str, Any]) -> list[Panel]:
    """Plot insertion, memory and latency."""
    inserted, drafts = results["insertion"], results["drafts"]
    names = list(inserted)
    rates = [each["tokens"] / each["seconds"] for each in inserted.values()]
    sizes = [each["bytes"] / each["tokens"] for each in results["memory"].values()]
    return [
        Panel("insertion", "tokens a second", names, {"tokens/s": rates}, logarithmic=True),
        Panel("memory", "bytes a token", names, {"bytes": sizes}, logarithmic=True),
        Panel(
            "drafts from Python",
            "microseconds",
            names,
            {name: [drafts[each][f"{name}_us"] for each in names] for name in ("p50", "p99")},
            logarithmic=True,
        ),
    ]
