"""Totals of a build, summed over blocks and segments."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class BuildCounts:
    """Totals of a block, a segment or a build.

    Attributes:
        documents: number of documents that have tokens.
        described: number of documents that have metadata.
        tokens: number of tokens, without separators.
        text_bytes: bytes of UTF-8 text; for tokenized corpora, bytes of token ids.
        replaced: number of invalid UTF-8 sequences, each replaced by U+FFFD.
        left_out: number of records that yield no document: requests without an answer, conversations that the chat
            template rejects.
        routed, checked, differed: see ``suffolk.build_index.encoder.EncodedTexts``.
    """

    documents: int = 0
    described: int = 0
    tokens: int = 0
    text_bytes: int = 0
    replaced: int = 0
    routed: int = 0
    checked: int = 0
    differed: int = 0
    left_out: int = 0

    def add(self, other: BuildCounts) -> None:
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))
