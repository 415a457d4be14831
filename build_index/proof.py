"""Compares the fast path (Kitoken) with Hugging Face tokenizers on a sample of the corpus, before the build."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from kitoken import Kitoken
from tokenizers import Tokenizer

from suffolk.build_index.block import TokenRun
from suffolk.build_index.documents import TEXTS_ALONE, parse_documents
from suffolk.build_index.encoder import Encoder
from suffolk.build_index.input_file import TOKEN_KINDS
from suffolk.build_index.inputs import Inputs
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.reader import read_blocks
from suffolk.build_index.records import RecordRules
from suffolk.build_index.report import count

Item = TypeVar("Item")
SAMPLE_FILES = 256
SAMPLE_BYTES = 2 << 20
SAMPLE_BLOCK_BYTES = 256 << 10
SAMPLE_DOCUMENT_CHARACTERS = 64 << 10


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of the comparison.

    Attributes:
        fast: whether the build may use the fast path.
        reason: the reason for ``fast``, as a text for the report.
        documents, text_bytes, tokens: size of the sample.
        fast_rate: bytes of text per second on the fast path; 0 if it was not tried.
        exact_rate: bytes of text per second of Hugging Face tokenizers, with all their threads.
        growth: bytes of text per byte of the corpus on disk.
    """

    fast: bool
    reason: str
    documents: int = 0
    text_bytes: int = 0
    tokens: int = 0
    fast_rate: float = 0.0
    exact_rate: float = 0.0
    growth: float = 1.0


@dataclass(frozen=True, slots=True)
class TextSample:
    """Documents from all parts of the corpus.

    Attributes:
        texts: their texts.
        growth: bytes of text per byte on disk.
        recorded: tokens of sampled recordings, which need no tokenizer.
    """

    texts: list[str]
    growth: float
    recorded: int = 0


def load_fast(tokenizer: Tokenizer) -> Kitoken | str:
    """Convert ``tokenizer`` to Kitoken. If this is impossible, return the reason as a text."""
    try:
        return Kitoken.from_tokenizers(tokenizer.to_str().encode())
    except ValueError as error:
        return f"the fast tokenizer cannot read it ({' '.join(str(error).split())[:120]})"


def prove(tokenizer: Tokenizer, sample: TextSample, tokenization: str) -> Proof:
    """Tokenize ``sample`` with both libraries and compare. Documents that always go to Hugging Face tokenizers are left out."""
    size = sum(len(text.encode()) for text in sample.texts)
    with ThreadPoolExecutor(1) as thread:  # Hugging Face tokenizers release the GIL, and leave cores idle at their end
        begin = time.perf_counter()
        exact = thread.submit(Encoder(tokenizer, None).encode_exactly, sample.texts)
        fast = load_fast(tokenizer) if tokenization != "exact" else "asked for with --tokenization exact"
        ids = exact.result()
    exact_rate = size / max(time.perf_counter() - begin, 1e-9)
    tokens = sum(map(len, ids)) + sample.recorded
    facts = Proof(False, "", len(ids), size + 4 * sample.recorded, tokens, 0.0, exact_rate, sample.growth)
    if isinstance(fast, str):
        return replace(facts, reason=fast)
    encoder = Encoder(tokenizer, fast)
    begin = time.perf_counter()
    equal = [
        encoder.is_risky(text) or fast.encode(text, True) == expected
        for text, expected in zip(sample.texts, ids, strict=True)
    ]
    facts = replace(facts, fast_rate=size / max(time.perf_counter() - begin, 1e-9))
    if differing := equal.count(False):
        return replace(
            facts, reason=f"the fast path gave other ids for {differing} of {count(len(ids), 'sampled document')}"
        )
    return replace(
        facts, fast=True, reason=f"equal ids for all {count(len(ids), 'sampled document')}, {size / 1e6:.1f} MB"
    )


def take_sample(inputs: Inputs, options: BuildOptions, rules: RecordRules = TEXTS_ALONE) -> TextSample:
    """Read about 2 MiB of documents, in equal parts from up to 256 files spread evenly over the inputs.

    Raises:
        SuffolkError: a file is damaged or of the wrong form, as in the build.
    """
    files = spread([file for file in inputs.files if file.kind not in TOKEN_KINDS], SAMPLE_FILES)
    texts: list[str] = []
    taken = text_bytes = disk_bytes = recorded = 0
    for number, file in enumerate(files, 1):
        wanted = SAMPLE_BYTES * number // len(files)
        here = 0
        for block in read_blocks(Inputs((file,)), options, "u32"):
            if isinstance(block.payload, TokenRun):
                break
            documents = parse_documents(block.payload, options, rules)
            recorded += sum(map(len, documents.recorded.values()))
            chosen = _choose(documents.texts, min(wanted - taken, SAMPLE_BLOCK_BYTES))
            texts += chosen
            taken += sum(len(text.encode()) for text in chosen)
            text_bytes += documents.text_bytes
            here = block.bytes_read
            if taken >= wanted:
                break
        disk_bytes += here
    return TextSample(texts, text_bytes / disk_bytes if disk_bytes else 1.0, recorded)


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """At most ``count`` of ``items``, evenly spaced."""
    if len(items) <= count:
        return list(items)
    return [items[index * len(items) // count] for index in range(count)]


def _choose(texts: Sequence[str], wanted: int) -> list[str]:
    """Choose at least one of ``texts``, evenly spaced, about ``wanted`` characters in all. Very long texts are shortened."""
    short = [text[:SAMPLE_DOCUMENT_CHARACTERS] for text in texts if text]
    average = sum(map(len, short)) / max(1, len(short))
    return spread(short, max(1, round(wanted / max(1.0, average))))
