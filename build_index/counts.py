"""What a build counted; adds up over blocks and segments."""

from __future__ import annotations

from dataclasses import dataclass, fields

from suffolk.build_index.encode_block import EncodedBlock


@dataclass(slots=True)
class Counts:
    """Totals: documents, those with metadata, tokens (without separators), bytes of text, invalid places replaced, and how ids
    came about.

    ``routed``, ``checked`` and ``differed`` are those of ``suffolk.build_index.encoder.EncodedTexts``.
    """

    documents: int = 0
    described: int = 0
    tokens: int = 0
    text_bytes: int = 0
    replaced: int = 0
    routed: int = 0
    checked: int = 0
    differed: int = 0

    def add_block(self, block: EncodedBlock) -> None:
        self.documents += len(block.sources)
        self.described += sum(map(bool, block.metadata))
        self.tokens += len(block.tokens) - len(block.sources)
        self.text_bytes += block.text_bytes
        self.replaced += block.replaced
        self.routed += block.routed
        self.checked += block.checked
        self.differed += block.differed

    def add(self, other: Counts) -> None:
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))
