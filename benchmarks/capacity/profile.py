"""Measures all costs of serving a datastore on this machine."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.benchmarks.capacity.calls import measure_calls
from suffolk.benchmarks.capacity.search import MAX_MATCH, measure_search, sorted_per_second
from suffolk.benchmarks.memory import limited_process
from suffolk.benchmarks.memory.measure import random_windows
from suffolk.benchmarks.memory.page_cache import random_read_seconds
from suffolk.benchmarks.processes import run_watched
from suffolk.benchmarks.report import commit, describe_machine
from suffolk.benchmarks.retrieval.contexts import ContextSet, spoil
from suffolk.build_index.encoder import Encoder
from suffolk.build_index.progress import part_progress
from suffolk.build_index.proof import load_fast
from suffolk.capacity.index_size import segment_bytes
from suffolk.capacity.need import amount
from suffolk.capacity.service_costs import ServiceCosts
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.files import write_json
from suffolk.datastore.manifest import SEGMENTS_NAME

CONTEXTS = 512
_LEAST_CONTEXT = 4
_PARTS = 5
READS, CONTEXTS = 1000, 200
DOCUMENTS, LONGEST = 200, 20_000
UNKNOWN_RATE, UNKNOWN_BYTES = 7.5e6, 3.5
"""For a datastore without a tokenizer: the figures of Python source with SmolLM2's tokenizer."""


def measure_service_costs(path: Path, max_nodes: int = 64, seconds: float = 4.0) -> ServiceCosts:
    """Measure the datastore at ``path``, in under a minute.

    Args:
        max_nodes: nodes of a draft.
        seconds: of each of four loads of the server.

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

        disk = measure_disk(store, workdir, contexts, max_nodes)
        done()
        search = measure_search(store, workdir, contexts, max_nodes)
        done()
        text, sorted_tokens = measure_text(store), sorted_per_second(store)
        done()
        calls = measure_calls(path, contexts, max_nodes, seconds, done)
        return ServiceCosts(
            machine=_machine(),
            datastore=_facts(store),
            max_nodes=max_nodes,
            server_call_s=calls.server_call_s,
            server_context_s=max(0.0, calls.server_context_s - search.seconds),
            client_call_s=calls.client_call_s,
            client_context_s=calls.client_context_s,
            segment_s=search.segment_s,
            segment_tokens=search.segment_tokens,
            doubling_s=search.doubling_s,
            search_spread=search.spread,
            wait_s=calls.wait_s,
            request_call_bytes=calls.request_call_bytes,
            request_context_bytes=calls.request_context_bytes,
            reply_context_bytes=calls.reply_context_bytes,
            cold_reads=disk.reads,
            read_s=disk.read_s,
            sorted_tokens=sorted_tokens,
            text_bytes=text.bytes_per_second,
            token_bytes=text.token_bytes,
            table_bytes=_table_bytes(store),
            process_bytes=calls.process_bytes,
        )


def sample_contexts(store: Datastore) -> list[list[int]]:
    """Windows of the corpus, and as many with one token changed, in turn: long matches and short ones."""
    windows = random_windows(store.path, store.manifest, CONTEXTS, MAX_MATCH, 0)
    seen = [window for window in windows if len(window) >= _LEAST_CONTEXT][: CONTEXTS // 2]
    if not seen:
        raise InvalidArgument(
            f"{store.path} has no documents of {_LEAST_CONTEXT} tokens; profile a datastore with more text"
        )
    spoilt = spoil(ContextSet("", "", seen, []), store.manifest.vocab_size, 0)
    return [context for pair in zip(seen, spoilt.contexts, strict=True) for context in pair]


def _table_bytes(store: Datastore) -> float:
    """Bytes of a document in the document tables: what the other sections leave of the files."""
    entries, vocab_size = store.manifest.segments, store.manifest.vocab_size
    left = sum(each.bytes - segment_bytes(each.tokens, each.documents, vocab_size, 0) for each in entries)
    return max(0.0, left / max(1, sum(each.documents for each in entries)))


def _machine() -> str:
    machine = describe_machine()
    return f"{machine['cpu']}, {machine['usable_cores']} cores, commit {(commit() or 'unknown')[:8]}"


def _facts(store: Datastore) -> str:
    entries = store.manifest.segments
    return f"{amount(sum(each.tokens for each in entries))} tokens in {len(entries)} segments"


@dataclass(frozen=True, slots=True)
class DiskCosts:
    """Disk reads of a context in a segment, and median seconds of a random read of 4 KiB (0: there are no direct reads)."""

    reads: float
    read_s: float


def measure_disk(store: Datastore, workdir: Path, contexts: Sequence[Any], max_nodes: int) -> DiskCosts:
    """Ask for drafts from files that were dropped from memory. Files that another process maps stay in memory."""
    file = workdir / "contexts.json"
    write_json(file, contexts[:CONTEXTS])
    settings = {
        "store": str(store.path), "residency": "mmap", "limit_bytes": None, "contexts": str(file), "rounds": 1,
        "max_match": MAX_MATCH, "min_match": 1, "max_nodes": max_nodes, "seed": 0,
    }  # fmt: skip
    watched = run_watched([sys.executable, "-m", limited_process.__name__, json.dumps(settings)])
    segments = store.manifest.segments
    largest = max(segments, key=lambda entry: entry.bytes)
    seconds = random_read_seconds(store.path / SEGMENTS_NAME / largest.name, READS, 0)
    reads = json.loads(watched.output)["cold"]["major_faults_per_call"] / len(segments)
    return DiskCosts(reads, float(np.median(seconds)) if seconds else 0.0)


@dataclass(frozen=True, slots=True)
class TextCosts:
    """Bytes of text that a core tokenizes in a second, and bytes of text of a token."""

    bytes_per_second: float
    token_bytes: float


def measure_text(store: Datastore) -> TextCosts:
    """Tokenize the text of the first documents again, on the fast path if there is one."""
    tokenizer = store.tokenizer()
    if tokenizer is None:
        return TextCosts(UNKNOWN_RATE, UNKNOWN_BYTES)
    documents = [each.tokens[:LONGEST].tolist() for each in islice(store.documents(), DOCUMENTS)]
    texts = [tokenizer.decode(tokens) for tokens in documents]
    fast = load_fast(tokenizer)
    encoder = Encoder(tokenizer, None if isinstance(fast, str) else fast)
    begin = time.process_time()  # of all threads, as if one core did all work
    encoder.encode(texts, 0)
    seconds = time.process_time() - begin
    size = sum(len(text.encode()) for text in texts)
    return TextCosts(size / seconds, size / sum(map(len, documents)))
