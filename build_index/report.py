"""The report of a finished build."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from suffolk.build_index.skipped import skipped_line

SHOWN_SECONDS = 0.1
"""Least seconds of a part that the report shows. Reading and sorting are always shown."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """The outcome of a build.

    Rates count this run alone. All other numbers include earlier runs of the same build, unless stated.

    Attributes:
        store: the datastore's folder.
        generation: the generation that was published.
        segments, documents, tokens: number of each that this build added.
        described: number of documents with each field of ``--metadata``.
        text_bytes: bytes of UTF-8 text; for tokenized corpora, bytes of token ids.
        store_bytes: size of the added segments.
        seconds: wall time of this run.
        tokenize_seconds, sort_seconds: wall time of tokenizing (reading included) and of sorting, in this run.
        other_seconds: wall time of each other part of this run.
        run_text_bytes, run_tokens: bytes of text and number of tokens that this run processed.
        resumed_segments: number of segments kept from an interrupted run.
        peak_memory_bytes: sum of the largest resident sizes of the builder and each worker. On Ray: of the builder and the largest
            task.
        workers: number of tokenizing processes.
        left_out: number of records that yield no document.
        replaced_invalid: number of invalid UTF-8 sequences, each replaced by U+FFFD.
        skipped: number of files left out, by reason.
        examples: paths of the first skipped files, by reason.
        fast: whether the fast path (Kitoken) was used; ``tokenization`` gives the reason.
        routed: number of documents with content that only Hugging Face tokenizers handle.
        checked: number of slices of documents that both libraries tokenized during the build.
        differed: number of these slices with different ids. Hugging Face tokenizers then encoded the blocks of these slices again.
    """

    store: str
    generation: int
    segments: int
    documents: int
    tokens: int
    described: dict[str, int]
    text_bytes: int
    store_bytes: int
    seconds: float
    tokenize_seconds: float
    sort_seconds: float
    other_seconds: dict[str, float]
    run_text_bytes: int
    run_tokens: int
    resumed_segments: int
    peak_memory_bytes: int
    workers: int
    left_out: int
    replaced_invalid: int
    skipped: dict[str, int]
    examples: dict[str, list[str]]
    fast: bool
    tokenization: str
    routed: int
    checked: int
    differed: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with the rates."""
        return {**asdict(self), "text_bytes_per_second": self.text_rate, "tokens_per_second": self.token_rate}

    @property
    def text_rate(self) -> float:
        """Bytes of text per second of this run, sorting included."""
        return self.run_text_bytes / max(self.seconds, 1e-9)

    @property
    def token_rate(self) -> float:
        """Tokens per second of this run, sorting included."""
        return self.run_tokens / max(self.seconds, 1e-9)

    def lines(self) -> list[str]:
        """The report as lines of text."""
        per_token = self.store_bytes / max(1, self.tokens)
        others = "".join(
            f", {part} {seconds:.1f} s" for part, seconds in self.other_seconds.items() if seconds >= SHOWN_SECONDS
        )
        lines = [
            f"built {self.store} (generation {self.generation})",
            f"  added      {count(self.tokens, 'token')} of {count(self.documents, 'document')} in "
            f"{count(self.segments, 'segment')}, {megabytes(self.store_bytes)} ({per_token:.2f} bytes a token)",
            f"  speed      {megabytes(self.run_text_bytes)} in {self.seconds:.1f} s: {self.text_rate / 1e6:.1f} MB/s, "
            f"{self.token_rate:,.0f} tokens/s (reading and tokenizing {self.tokenize_seconds:.1f} s, "
            f"sorting {self.sort_seconds:.1f} s{others})",
            f"  memory     {megabytes(self.peak_memory_bytes)} at most, with {count(self.workers, 'tokenizing process')}",
            f"  tokenizer  {self._tokenizer_line()}",
            f"  text       {self.replaced_invalid:,} invalid UTF-8 places replaced",
            f"  skipped    {skipped_line(self.skipped, self.examples)}",
        ]
        if self.left_out:
            lines.append(f"  left out   {count(self.left_out, 'record')} without a document")
        if self.described:
            kept = ", ".join(f"{name} with {number:,}" for name, number in self.described.items())
            lines.append(f"  metadata   {kept} of {count(self.documents, 'document')}")
        if self.resumed_segments:
            lines.insert(3, f"  resumed    {count(self.resumed_segments, 'segment')} of an interrupted run")
        return lines

    def _tokenizer_line(self) -> str:
        if not self.fast:
            return self.tokenization
        line = (
            f"{self.tokenization}; {count(self.routed, 'document')} with special text went to Hugging Face tokenizers; "
        )
        if not self.differed:
            return f"{line}{self.checked:,} more checks during the build all equal"
        return (
            f"{line}{self.differed:,} of {self.checked:,} checks during the build DIFFERED: their blocks were tokenized again by "
            "Hugging Face tokenizers. Other blocks may hold a few different ids, which makes drafts worse, but never changes a "
            "text; --tokenization exact avoids this"
        )


def megabytes(size: float) -> str:
    """A size in bytes as a text, in decimal units."""
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def count(number: int, noun: str) -> str:
    """Format a number and a noun. The noun is in the plural unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"
