"""Makes query contexts, seen in the corpus or unseen, each with its true continuation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from suffolk.datastore.datastore import Datastore
from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.datastore.tokenizer import load_tokenizer

Ids = list[int]


@dataclass(frozen=True, slots=True)
class ContextSet:
    """Contexts of one kind.

    Attributes:
        name: "seen" or "unseen".
        how: description of how they were made.
        contexts: token ids, oldest first.
        continuations: the tokens that follow each context in its document; shorter at the document's end.
    """

    name: str
    how: str
    contexts: list[Ids]
    continuations: list[Ids]

    def first(self, count: int) -> ContextSet:
        """Return the first ``count`` contexts."""
        return replace(self, contexts=self.contexts[:count], continuations=self.continuations[:count])


def join_documents(store: Datastore) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Return all tokens of a datastore without separators, and the start of each document, followed by the total."""
    documents = [document.tokens for document in store.documents()]
    if not any(map(len, documents)):
        raise InvalidArgument(f"{store.path} holds no tokens, so there is nothing to measure")
    return _joined(documents)


def _joined(documents: Sequence[npt.NDArray[np.uint32]]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    starts = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    return np.concatenate([np.empty(0, np.uint32), *documents]), starts


def sample_seen(
    tokens: npt.NDArray[np.uint32], starts: npt.NDArray[np.int64], queries: int, length: int, depth: int, seed: int
) -> ContextSet:
    """Sample ``queries`` windows of ``length`` tokens, uniformly over all possible places in the corpus."""
    contexts, continuations = _windows(tokens, starts, queries, length, depth, np.random.default_rng(seed))
    return ContextSet("seen", f"{length} tokens from the corpus, uniform over its tokens", contexts, continuations)


def spoil(seen: ContextSet, vocab_size: int, seed: int) -> ContextSet:
    """Return ``seen`` with one token in the last half of each context replaced by a random id."""
    chooser = np.random.default_rng(seed)
    contexts = [list(context) for context in seen.contexts]
    for context in contexts:
        place = int(chooser.integers(len(context) // 2, len(context)))
        context[place] = (context[place] + int(chooser.integers(1, vocab_size))) % vocab_size
    how = "the seen contexts, each with one token of its later half replaced by a random id"
    return ContextSet("unseen", how, contexts, seen.continuations)


def sample_files(
    store: Datastore, paths: Sequence[Path], queries: int, length: int, depth: int, seed: int
) -> ContextSet:
    """Sample windows of texts outside the corpus, encoded with the datastore's tokenizer.

    Raises:
        NotFound: a file is missing.
        InvalidArgument: the datastore has no tokenizer, or the texts are too short.
    """
    tokenizer_path = store.tokenizer_path()
    if tokenizer_path is None:
        raise InvalidArgument(f"{store.path} has no tokenizer to encode the texts of --contexts; leave that option out")
    tokenizer = load_tokenizer(tokenizer_path)
    texts = [text for path in paths for text in read_texts(path)]
    documents = [np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.uint32) for text in texts]
    tokens, starts = _joined(documents)
    contexts, continuations = _windows(tokens, starts, queries, length, depth, np.random.default_rng(seed))
    how = f"{length} tokens from {len(texts)} texts outside the corpus ({len(tokens):,} tokens)"
    return ContextSet("unseen", how, contexts, continuations)


def read_texts(path: Path) -> list[str]:
    """Read the texts of a file.

    A .jsonl row gives its ``text``, or its messages' contents and prefill. Any other file is one text.

    Raises:
        NotFound: the file is missing.
        InvalidArgument: a row has neither text nor messages.
    """
    try:
        raw = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise NotFound(f"{path}: {error.strerror}; name a text or .jsonl file") from error
    if path.suffix != ".jsonl":
        return [raw]
    return [_row_text(line, f"{path} line {number}") for number, line in enumerate(raw.splitlines(), 1) if line.strip()]


def _row_text(line: str, place: str) -> str:
    try:
        row = json.loads(line)
        if "text" in row:
            return str(row["text"])
        return "\n".join([*(str(message["content"]) for message in row["messages"]), str(row.get("prefill", ""))])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(
            f"{place} has no 'text' and no 'messages' ({error}); give one JSON object a line"
        ) from error


def _windows(
    tokens: npt.NDArray[np.uint32],
    starts: npt.NDArray[np.int64],
    queries: int,
    length: int,
    depth: int,
    chooser: np.random.Generator,
) -> tuple[list[Ids], list[Ids]]:
    sizes = np.maximum(np.diff(starts) - length, 0)  # number of windows in each document that are followed by a token
    if not sizes.sum():
        raise InvalidArgument(
            f"no document has more than {length} tokens, so there are no contexts of {length}; use a shorter context"
        )
    ends = np.cumsum(sizes)
    picks = chooser.integers(0, ends[-1], queries)
    owners = np.searchsorted(ends, picks, side="right")
    begins = starts[owners] + picks - (ends[owners] - sizes[owners])
    contexts = [tokens[begin : begin + length].tolist() for begin in begins]
    continuations = [
        tokens[begin + length : min(begin + length + depth, starts[owner + 1])].tolist()
        for begin, owner in zip(begins, owners, strict=True)
    ]
    return contexts, continuations
