"""Measures all costs of serving a datastore on this machine."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.benchmarks.building.sorting import ended, read_tokens
from suffolk.benchmarks.folder import first_tokens
from suffolk.benchmarks.memory.limited_process import ask
from suffolk.benchmarks.memory.measure import random_windows
from suffolk.benchmarks.memory.page_cache import random_read_seconds
from suffolk.benchmarks.processes import helper_command, run_watched
from suffolk.benchmarks.report import commit, describe_machine
from suffolk.benchmarks.retrieval.contexts import ContextSet, spoil
from suffolk.benchmarks.service.load import on_core, run_closed, run_open, serving
from suffolk.benchmarks.service.measure import MAX_DEPTH, cpu_seconds, draft_request
from suffolk.build_index.encoder import Encoder
from suffolk.build_index.progress import part_progress
from suffolk.build_index.proof import load_fast
from suffolk.capacity.index_size import segment_bytes
from suffolk.capacity.need import amount
from suffolk.capacity.service_costs import ServiceCosts
from suffolk.datastore import _native
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.files import write_json
from suffolk.datastore.host_memory import process_memory
from suffolk.datastore.manifest import SEGMENTS_NAME
from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.net.messages import columns
from suffolk.serving.net.url import parse_url

MAX_MATCH = 16
BATCHES = (1, 32)
CLIENTS = 4
"""Clients that keep the server busy all the time."""
LOAD_SHARE = 0.6
"""Calls a second under load, as a share of the calls that a busy server answers. Capacity plans use the costs at this load.

A less loaded server spends more time on waking threads.
"""
DEADLINE = 10.0


def serve_command(store: Path) -> list[str]:
    """Return the command of the server that capacity plans assume: one search thread."""
    command = [sys.executable, "-m", "suffolk", "serve", f"store={store}", "--listen", "127.0.0.1:0", "--http", "off"]
    return [*command, "--residency", "warm", "--set", "search_threads=1"]


def measure_calls(
    store: Path, contexts: Sequence[Any], max_nodes: int, seconds: float, done: Callable[[], None]
) -> dict[str, Any]:
    """Measure the costs of calls, by field of ``ServiceCosts``. The cost of a context includes its search.

    The server has its own core if the machine has two. ``seconds``: duration of each load. ``done`` is called after each batch
    size.
    """
    with ExitStack() as stack:
        with on_core(0):
            url, server = stack.enter_context(serving(store, serve_command(store)))
        stack.enter_context(on_core(1))
        remote = stack.enter_context(connect(url, DEADLINE))
        remote.draft_batch(contexts[: BATCHES[-1]], MAX_MATCH, 1, MAX_DEPTH, max_nodes)
        ends, sizes = [], []
        for size in BATCHES:
            batches = [contexts[start : start + size] for start in range(0, len(contexts) - size + 1, size)]
            requests = [draft_request(batch, MAX_MATCH, max_nodes) for batch in batches]
            ends.append(
                (_under_load(url, server, requests, seconds), *_alone(remote, server, batches, max_nodes, seconds))
            )
            sizes.append((len(requests[0]), _reply_bytes(remote, batches, max_nodes) / size))
            done()
        memory = process_memory("RssAnon", server)
    few, many = BATCHES
    slopes = [(after - before) / (many - few) for before, after in zip(ends[0], ends[1], strict=True)]
    each = (sizes[1][0] - sizes[0][0]) / (many - few)
    wait = ends[0][2] - ends[0][3] - ends[0][1]
    return {
        "server_call_s": ends[0][0] - few * slopes[0],
        "server_context_s": slopes[0],
        "client_call_s": ends[0][1] - few * slopes[1],
        "client_context_s": slopes[1],
        "wait_s": max(0.0, wait),
        "request_call_bytes": max(0.0, sizes[0][0] - few * each),
        "request_context_bytes": each,
        "reply_context_bytes": sizes[1][1],
        "process_bytes": memory,
    }


def _under_load(url: str, server: int, requests: Sequence[bytes], seconds: float) -> float:
    """Measure the server's processor seconds for a call, at LOAD_SHARE of the calls that it can answer."""
    target = parse_url(url).target
    full = run_closed(target, requests, CLIENTS, seconds / 4, DEADLINE)
    begin = cpu_seconds(server)
    load = run_open(target, requests, LOAD_SHARE * full.codes["OK"] / full.seconds, seconds, DEADLINE)
    return (cpu_seconds(server) - begin) / max(1, sum(load.codes.values()))


def _alone(
    remote: Any, server: int, batches: Sequence[Any], max_nodes: int, seconds: float
) -> tuple[float, float, float]:
    """Make calls one by one. Return processor seconds at the client, median wall seconds, and processor seconds at the server."""
    walls: list[float] = []
    begin, own, other = time.perf_counter(), time.process_time(), cpu_seconds(server)
    while time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        remote.draft_batch(batches[len(walls) % len(batches)], MAX_MATCH, 1, MAX_DEPTH, max_nodes)
        walls.append(time.perf_counter() - start)
    calls = len(walls)
    return (time.process_time() - own) / calls, float(np.median(walls)), (cpu_seconds(server) - other) / calls


def _reply_bytes(remote: Any, batches: Sequence[Any], max_nodes: int) -> float:
    """Mean size of a reply."""
    replies = [
        columns.pack_trees(remote.draft_batch(batch, MAX_MATCH, 1, MAX_DEPTH, max_nodes)) for batch in batches[:64]
    ]
    return float(np.mean([reply.ByteSize() for reply in replies]))


CONTEXTS = 512
_LEAST_CONTEXT = 4
_PARTS = 5
READS, COLD_CONTEXTS = 1000, 200
DOCUMENTS, LONGEST = 200, 20_000
UNKNOWN_RATE, UNKNOWN_BYTES = 7.5e6, 3.5
"""For a datastore without a tokenizer: the figures of Python source with SmolLM2's tokenizer."""


def measure_service_costs(path: Path, max_nodes: int = 64, seconds: float = 4.0) -> ServiceCosts:
    """Measure the datastore at ``path``, in under a minute.

    Args:
        max_nodes: nodes of a draft.
        seconds: duration of each of the four loads of the server.

    Raises:
        NotFound, Corruption: the datastore is missing or damaged.
        InvalidArgument: it holds too little text.
        Unavailable: the server does not start.
    """
    with (
        open_datastore(path) as store,
        tempfile.TemporaryDirectory(prefix="suffolk-profile-") as folder,
        part_progress(_PARTS, "parts") as progress,
    ):
        workdir, contexts, parts = Path(folder), sample_contexts(store), iter(range(1, _PARTS + 1))

        def done() -> None:
            progress(next(parts))

        costs = measure_disk(store, workdir, contexts, max_nodes)
        done()
        search, context_s = measure_search(store, workdir, contexts, max_nodes)
        done()
        costs |= search | measure_text(store) | {"sorted_tokens": sorted_per_second(store)}
        done()
        costs |= measure_calls(path, contexts, max_nodes, seconds, done) | {"table_bytes": _table_bytes(store)}
        costs["server_context_s"] = max(0.0, costs["server_context_s"] - context_s)
        return ServiceCosts(_machine(), _facts(store), max_nodes, **costs)


def sample_contexts(store: Datastore) -> list[list[int]]:
    """Return windows of the corpus, alternating with windows that have one changed token. These have shorter matches."""
    windows = random_windows(store, CONTEXTS, MAX_MATCH, 0)
    seen = [window for window in windows if len(window) >= _LEAST_CONTEXT][: CONTEXTS // 2]
    if not seen:
        raise InvalidArgument(
            f"{store.path} has no documents of {_LEAST_CONTEXT} tokens; profile a datastore with more text"
        )
    spoilt = spoil(ContextSet("", "", seen, []), store.manifest.vocab_size, 0)
    return [context for pair in zip(seen, spoilt.contexts, strict=True) for context in pair]


def _table_bytes(store: Datastore) -> float:
    """Return the mean bytes of a document in the document tables: the size of the files, less that of all other sections."""
    entries, vocab_size = store.manifest.segments, store.manifest.vocab_size
    left = sum(each.bytes - segment_bytes(each.tokens, each.documents, vocab_size, 0) for each in entries)
    return max(0.0, left / max(1, sum(each.documents for each in entries)))


def _machine() -> str:
    machine = describe_machine()
    return f"{machine['cpu']}, {machine['usable_cores']} cores, commit {(commit() or 'unknown')[:8]}"


def _facts(store: Datastore) -> str:
    entries = store.manifest.segments
    return f"{amount(sum(each.tokens for each in entries))} tokens in {len(entries)} segments"


def measure_disk(store: Datastore, workdir: Path, contexts: Sequence[Any], max_nodes: int) -> dict[str, Any]:
    """Measure disk reads of a context in a segment, and seconds of a read (0 if direct reads fail), by field of ``ServiceCosts``.

    The drafts read files that were dropped from the page cache. Files that another process maps cannot be dropped.
    """
    file = workdir / "contexts.json"
    write_json(file, contexts[:COLD_CONTEXTS])
    settings = {
        "store": str(store.path), "residency": "mmap", "limit_bytes": None, "contexts": str(file), "rounds": 1,
        "max_match": MAX_MATCH, "min_match": 1, "max_nodes": max_nodes, "seed": 0,
    }  # fmt: skip
    watched = run_watched(helper_command(ask, settings=settings))
    segments = store.manifest.segments
    largest = max(segments, key=lambda entry: entry.bytes)
    seconds = random_read_seconds(store.path / SEGMENTS_NAME / largest.name, READS, 0)
    reads = json.loads(watched.output)["cold"]["major_faults_per_call"] / len(segments)
    return {"cold_reads": reads, "read_s": float(np.median(seconds)) if seconds else 0.0}


def measure_text(store: Datastore) -> dict[str, Any]:
    """Measure the bytes of text that a core tokenizes in a second, and the bytes of a token, by field of ``ServiceCosts``.

    Tokenizes the text of the first documents again, on the fast path if there is one.
    """
    tokenizer = store.tokenizer()
    if tokenizer is None:
        return {"text_bytes": UNKNOWN_RATE, "token_bytes": UNKNOWN_BYTES}
    documents = [each.tokens[:LONGEST].tolist() for each in islice(store.documents(), DOCUMENTS)]
    texts = [tokenizer.decode(tokens) for tokens in documents]
    fast = load_fast(tokenizer)
    encoder = Encoder(tokenizer, None if isinstance(fast, str) else fast)
    begin = time.process_time()  # adds the time of all threads, as if one core did all work
    encoder.encode(texts, 0)
    seconds = time.process_time() - begin
    size = sum(len(text.encode()) for text in texts)
    return {"text_bytes": size / seconds, "token_bytes": size / sum(map(len, documents))}


CUT_TOKENS, SORTED_TOKENS = 1 << 20, 1 << 22
BATCH = 32
_ROUNDS = 3


def measure_search(
    store: Datastore, workdir: Path, contexts: Sequence[Any], max_nodes: int
) -> tuple[dict[str, Any], float]:
    """Measure the costs of a search, by field of ``ServiceCosts``, and the seconds of a context in the whole datastore.

    Searches the datastore, and one segment with its first tokens. The files are in memory, after the first round.
    """
    sizes = [entry.tokens for entry in store.manifest.segments]
    cut = max(1, min(CUT_TOKENS, sum(sizes) // 8))
    small, _ = _seconds(first_tokens(store, cut, workdir), contexts, max_nodes)
    whole, spread = _seconds(store.path, contexts, max_nodes)
    doublings = sum(float(np.log2(max(size, 1) / cut)) for size in sizes)
    doubling = max(0.0, (whole - len(sizes) * small) / doublings) if doublings > 0 else 0.0
    found = {"segment_s": small, "segment_tokens": cut, "doubling_s": doubling, "search_spread": spread}
    return found, whole


def sorted_per_second(store: Datastore) -> float:
    """Measure the tokens that one thread sorts in a second, in a segment of at most SORTED_TOKENS."""
    tokens = ended(read_tokens(store, SORTED_TOKENS))
    begin = time.process_time()
    _native.sort_suffixes(tokens, store.manifest.vocab_size, store.manifest.order_depth, 1)
    return len(tokens) / (time.process_time() - begin)


def _seconds(path: Path, contexts: Sequence[Any], max_nodes: int) -> tuple[float, float]:
    """Measure the processor seconds of a context in batches, and the spread of single contexts."""
    batches = [contexts[start : start + BATCH] for start in range(0, len(contexts), BATCH)]
    with open_datastore(path, threads=1) as store:
        rounds = []
        for _ in range(_ROUNDS):
            begin = time.process_time()
            for batch in batches:
                store.draft_batch(batch, MAX_MATCH, 1, MAX_DEPTH, max_nodes)
            rounds.append((time.process_time() - begin) / len(contexts))
        single = []
        for context in contexts:
            begin = time.process_time()
            store.draft_batch([context], MAX_MATCH, 1, MAX_DEPTH, max_nodes)
            single.append(time.process_time() - begin)
    return min(rounds), float(np.std(single) / np.mean(single))
