"""Helpers that run ``suffolk generate``, and small datastores for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.cli.main import main
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, publish
from suffolk.datastore.segment import write_segment
from tests.support.stores import separated

PROMPT = "abcabcabcabc"


def store_of(path: Path, tokenizer: str | None, order_depth: int = 64) -> str:
    (path / SEGMENTS_NAME).mkdir(parents=True)
    tokens = separated([list(b"abcabcabd" * 9)], 257)
    segment = path / SEGMENTS_NAME / "000000.seg"
    entry = write_segment(segment, tokens, vocab_size=257, order_depth=order_depth, fingerprint=tokenizer)
    publish(path, Manifest(1, (entry,), 257, order_depth, tokenizer, "2026-01-01T00:00:00Z"))
    return str(path)


def generate(*words: str) -> int:
    return main(["generate", "--max-new-tokens", "24", *words])


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command that fails, and return the one line that it prints."""
    assert generate(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("suffolk: ")
    assert captured.err.count("\n") == 1, captured.err
    return captured.err
