"""Measures how fast a core tokenizes the text of a datastore."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice

from suffolk.build_index.encoder import Encoder
from suffolk.build_index.proof import load_fast
from suffolk.datastore.datastore import Datastore

DOCUMENTS, LONGEST = 200, 20_000
UNKNOWN_RATE, UNKNOWN_BYTES = 7.5e6, 3.5
"""Of a datastore without a tokenizer: those of Python source and SmolLM2's tokenizer."""


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
    begin = time.process_time()  # of all threads, so that it is that of one core
    encoder.encode(texts, 0)
    seconds = time.process_time() - begin
    size = sum(len(text.encode()) for text in texts)
    return TextCosts(size / seconds, size / sum(map(len, documents)))
