"""Small datastores for tests, written by the production writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.documents import DocumentTableWriter, Metadata
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, publish, read_manifest, tokenizer_name
from suffolk.datastore.segment import separator, token_dtype, write_segment
from suffolk.datastore.tokenizer import fingerprint


def make_store(
    path: Path,
    segments: Sequence[Sequence[Sequence[int]]],
    *,
    vocab_size: int,
    order_depth: int = 64,
    threads: int = 1,
    tokenizer: str | None = None,
    origins: Sequence[Sequence[tuple[str, Metadata]]] | None = None,
) -> Datastore:
    """Publish a datastore of ``segments``: lists of documents, which are lists of token ids.

    ``tokenizer``: the tokenizer's fingerprint.
    """
    (path / SEGMENTS_NAME).mkdir(parents=True)
    entries = []
    for number, documents in enumerate(segments):
        table = DocumentTableWriter()
        if origins is not None:
            table.extend(origins[number])
        else:
            table.extend((f"segment {number} document {index}", {}) for index in range(len(documents)))
        entries.append(
            write_segment(
                path / SEGMENTS_NAME / f"{number:06d}.seg",
                separated([list(document) for document in documents], vocab_size),
                vocab_size=vocab_size,
                order_depth=order_depth,
                fingerprint=tokenizer,
                documents=table.finish(),
                threads=threads,
            )
        )
    publish(path, Manifest(1, tuple(entries), vocab_size, order_depth, tokenizer, "2026-01-01T00:00:00Z"))
    return open_datastore(path)


def append_documents(path: Path, documents: Sequence[Sequence[int]]) -> Manifest:
    """Publish the next generation of a datastore, with one more segment."""
    before = read_manifest(path)
    entry = write_segment(
        path / SEGMENTS_NAME / f"appended-{before.generation:06d}.seg",
        separated([list(document) for document in documents], before.vocab_size),
        vocab_size=before.vocab_size,
        order_depth=before.order_depth,
        fingerprint=before.tokenizer,
        threads=1,
    )
    after = before.next(segments=(*before.segments, entry))
    publish(path, after)
    return after


def separated(documents: list[list[int]], vocab_size: int) -> npt.NDArray[Any]:
    """Join documents into one token array with separators. REQUIRES: all ids are in 0..vocab_size-1."""
    dtype = token_dtype(vocab_size)
    end = separator(dtype)
    return np.array([token for document in documents for token in (*document, end)], dtype)


def random_documents(count: int, size: int, seed: int, vocab_size: int) -> list[list[int]]:
    """Make random documents of 1 to ``size`` - 1 token ids."""
    chooser = np.random.default_rng(seed)
    return [chooser.integers(0, vocab_size, int(chooser.integers(1, size))).tolist() for _ in range(count)]


def word_tokenizer() -> Tokenizer:
    """A tokenizer of six words: the, cat, sat, on, mat, dog."""
    words = ["the", "cat", "sat", "on", "mat", "dog"]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="the"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def byte_tokenizer(word: str = "") -> Tokenizer:
    """A tokenizer whose 256 tokens are bytes. If a ``word`` is given, its beginnings are tokens too."""
    starts = [word[:end] for end in range(2, len(word) + 1)]
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *starts]
    vocabulary = {token: place for place, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [(start[:-1], start[-1]) for start in starts]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def make_word_store(path: Path) -> str:
    """Publish a datastore with a tokenizer of six words: three documents in two segments."""
    documents = [[0, 1, 2, 3, 0, 4], [0, 5, 2, 3, 0, 4], [0, 1, 2]]
    tokenizer = word_tokenizer()
    mark = fingerprint(tokenizer)
    make_store(path, [documents[:2], documents[2:]], vocab_size=6, tokenizer=mark).close()
    tokenizer.save(str(path / tokenizer_name(mark)))
    return str(path)


def make_text_store(
    path: Path, tokenizer: Tokenizer, documents: Sequence[Sequence[int]], origins: Sequence[tuple[str, Metadata]]
) -> Datastore:
    """Publish a datastore of one segment with its ``tokenizer``, so that it can show its text. ``origins``: of the documents."""
    mark = fingerprint(tokenizer)
    make_store(path, [documents], vocab_size=tokenizer.get_vocab_size(), tokenizer=mark, origins=[origins]).close()
    tokenizer.save(str(path / tokenizer_name(mark)))
    return open_datastore(path)
