"""Estimates the tokens, time, memory and disk of a build before it starts."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from suffolk.build_index.input_file import TOKEN_KINDS
from suffolk.build_index.inputs import Inputs
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.proof import Proof
from suffolk.build_index.report import count, megabytes
from suffolk.build_index.skipped import skipped_line
from suffolk.build_index.target import BuildTarget
from suffolk.datastore.errors import ResourceExhausted
from suffolk.datastore.segment import token_dtype

STORE_BYTES_PER_TOKEN = {2: 6.2, 4: 7.2}
"""Upper bound of the bytes per token of a segment, by the width of the token array's type."""

SORT_TOKENS_PER_SECOND = 8e6
"""Tokens that one thread sorts in a second, in large segments. Measured on source code: 11 to 14 million. Slow disks give less."""

SORT_BYTES_PER_TOKEN = 4 + 1
"""Bytes of memory per token while sorting: its position, and scratch memory (csrc/core/sort.h)."""

BUILDER_BYTES, WORKER_BYTES = 300e6, 250e6
"""Bytes of memory of the builder, and of a worker, without a segment: interpreter, libraries, tokenizer, queued
blocks."""

IDS_RATE = 200e6
"""Bytes of token ids that are read in a second."""


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """Estimates for one build.

    Attributes:
        files, input_bytes: number of the inputs, and their size on disk.
        skipped: number of files left out, by reason.
        examples: paths of the first files left out.
        text_bytes, tokens: content of the inputs, estimated from a sample.
        segments, workers: number of new segments, and of tokenizing processes.
        tokenize_seconds, sort_seconds: time with ``workers`` processes.
        memory_bytes: resident size of builder and workers together.
        store_bytes, work_bytes: size of the new segments, and of temporary files.
        free_bytes: free space on the disk of the datastore.
        fast, tokenization: ``fast`` and ``reason`` of the ``Proof``.
    """

    files: int
    input_bytes: int
    skipped: dict[str, int]
    examples: dict[str, list[str]]
    text_bytes: int
    tokens: int
    segments: int
    workers: int
    tokenize_seconds: float
    sort_seconds: float
    memory_bytes: int
    store_bytes: int
    work_bytes: int
    free_bytes: int
    fast: bool
    tokenization: str

    def lines(self) -> list[str]:
        """The plan as lines of text."""
        seconds = self.tokenize_seconds + self.sort_seconds
        left_out = skipped_line(self.skipped, self.examples)
        way = "fast path" if self.fast else "Hugging Face tokenizers"
        return [
            f"input      {count(self.files, 'file')}, {megabytes(self.input_bytes)} on disk; skipped: {left_out}",
            f"text       about {megabytes(self.text_bytes)}",
            f"tokens     about {self.tokens:,} in {count(self.segments, 'segment')}",
            f"time       about {duration(seconds)} with {count(self.workers, 'process')} "
            f"({duration(self.tokenize_seconds)} reading and tokenizing, {duration(self.sort_seconds)} sorting)",
            f"memory     about {megabytes(self.memory_bytes)}",
            f"disk       about {megabytes(self.store_bytes)} for the datastore and {megabytes(self.work_bytes)} more while "
            f"building; {megabytes(self.free_bytes)} are free",
            f"tokenizer  {way}: {self.tokenization}",
        ]


def make_plan(options: BuildOptions, inputs: Inputs, target: BuildTarget, proof: Proof, workers: int) -> BuildPlan:
    """Compute the plan from the sizes of the files and the sample of ``proof``."""
    width = token_dtype(target.vocab_size).itemsize
    ids_bytes = sum(file.size for file in inputs.files if file.kind in TOKEN_KINDS)
    text_bytes = int((inputs.size - ids_bytes) * proof.growth)
    tokens = int(text_bytes * proof.tokens / max(1, proof.text_bytes)) + ids_bytes // (
        2 if target.token_width == "u16" else 4
    )
    rate = proof.fast_rate * workers if proof.fast else proof.exact_rate
    in_segment = min(tokens, options.segment_tokens)
    return BuildPlan(
        files=len(inputs.files),
        input_bytes=inputs.size,
        skipped=dict(inputs.skipped),
        examples=inputs.examples,
        text_bytes=text_bytes,
        tokens=tokens,
        segments=max(1, -(-tokens // options.segment_tokens)),
        workers=workers,
        tokenize_seconds=text_bytes / max(rate, 1.0) + ids_bytes / IDS_RATE,
        sort_seconds=tokens / SORT_TOKENS_PER_SECOND / options.workers(),
        memory_bytes=int(
            segment_bytes(in_segment, width) + BUILDER_BYTES + WORKER_BYTES * (workers if workers > 1 else 0)
        ),
        store_bytes=int(tokens * STORE_BYTES_PER_TOKEN[width]),
        work_bytes=in_segment * width,
        free_bytes=_free_bytes(options.output),
        fast=proof.fast,
        tokenization=proof.reason,
    )


def segment_bytes(tokens: int, width: int) -> int:
    """Bytes of memory for one segment: its tokens of ``width`` bytes, and the sort."""
    return tokens * (width + SORT_BYTES_PER_TOKEN)


def require_disk(plan: BuildPlan, store: Path) -> None:
    """Refuse a build that does not fit on its disk.

    Raises:
        ResourceExhausted: the build needs more disk space than is free.
    """
    needed = plan.store_bytes + plan.work_bytes
    if needed > plan.free_bytes:
        raise ResourceExhausted(
            f"{store}: the build needs about {megabytes(needed)} of disk and {megabytes(plan.free_bytes)} are free; free space, "
            "choose another --output, or build from fewer corpora"
        )


def duration(seconds: float) -> str:
    """Format seconds as a text."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _free_bytes(store: Path) -> int:
    place = next(folder for folder in (store, *store.absolute().parents) if os.path.isdir(folder))
    return shutil.disk_usage(place).free
