"""Tokenizes one document at a time with Hugging Face tokenizers and writes with draftretriever's writer."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.benchmarks.retrieval.draftretriever_package import require_package
from suffolk.build_index.block import TokenRun
from suffolk.build_index.documents import parse_documents
from suffolk.build_index.inputs import find_inputs
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.reader import read_blocks
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.tokenizer import load_tokenizer, vocab_size

DIGEST_BYTES = 8


def build(
    index: str, digests: str, corpora: list[str], tokenizer: str, text_field: str, extensions: list[str]
) -> dict[str, Any]:
    """Build ``index``. Returns documents, tokens, text_bytes, tokenize_seconds and write_seconds. For a process of its own.

    Digests of the documents' ids go into the file ``digests``.
    """
    encoder = load_tokenizer(tokenizer)
    writer = require_package().Writer(index, vocab_size=vocab_size(encoder))
    facts: dict[str, Any] = dict.fromkeys(("documents", "tokens", "text_bytes"), 0)
    seconds = dict.fromkeys(("tokenize_seconds", "write_seconds"), 0.0)
    found: list[bytes] = []
    options = BuildOptions(
        tuple(corpora), Path("unused"), tokenizer, text_field=text_field, extensions=tuple(extensions)
    )
    for texts, size in _texts(options):
        facts["text_bytes"] += size
        for text in texts:
            begin = time.perf_counter()
            ids = encoder.encode(text, add_special_tokens=False).ids
            middle = time.perf_counter()
            writer.add_entry(ids)
            seconds["write_seconds"] += time.perf_counter() - middle
            seconds["tokenize_seconds"] += middle - begin
            facts["tokens"] += len(ids)
            found.append(digest(ids))
    begin = time.perf_counter()
    writer.finalize()
    seconds["write_seconds"] += time.perf_counter() - begin
    facts["documents"] = len(found)
    Path(digests).write_bytes(b"".join(found))
    return facts | seconds


def digest(ids: Any) -> bytes:
    """An eight-byte digest of a document's token ids."""
    return hashlib.blake2b(np.asarray(ids, "<u4").tobytes(), digest_size=DIGEST_BYTES).digest()


def count_equal(digests: Path, store: Path) -> tuple[int, int]:
    """Compare the documents of ``store`` with the digests, in order. Documents without tokens are left out.

    Returns the number of documents with equal ids, and the larger of both numbers of documents.
    """
    raw, nothing = digests.read_bytes(), digest([])
    theirs = [raw[start : start + DIGEST_BYTES] for start in range(0, len(raw), DIGEST_BYTES)]
    theirs = [each for each in theirs if each != nothing]
    with open_datastore(store) as opened:
        ours = [digest(document.tokens) for document in opened.documents() if len(document.tokens)]
    return sum(a == b for a, b in zip(ours, theirs, strict=False)), max(len(ours), len(theirs))


def _texts(options: BuildOptions) -> Iterator[tuple[list[str], int]]:
    """Yield the documents as the builder reads them: one block at a time, with its size in bytes."""
    for block in read_blocks(find_inputs(options), options, "u16"):
        if isinstance(block.payload, TokenRun):
            raise InvalidArgument(f"{block.payload.path} is tokenized already; give text")
        parsed = parse_documents(block.payload, options)
        yield parsed.texts, parsed.text_bytes
