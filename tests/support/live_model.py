"""A live index beside the list of its documents, for comparisons with the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from tests.support import oracle

Bounds = dict[str, int]


@dataclass(frozen=True)
class Text:
    """A document: tokens, the key of its group (0: none), its origin, and seconds."""

    tokens: tuple[int, ...]
    group: int = 0
    origin: bytes = b""
    time: int = 0


def append(
    index: _native.LiveIndex, texts: Sequence[Text], removed: Sequence[int] = (), sequences: Sequence[int] | None = None
) -> int:
    """Append ``texts`` in one batch; return the number of the first."""
    return index.append(
        np.array([token for text in texts for token in text.tokens], np.uint32),
        np.array([len(text.tokens) for text in texts], np.uint64),
        np.array([text.group for text in texts], np.uint64),
        [text.origin for text in texts],
        np.array([text.time for text in texts], np.int64),
        np.array(removed, np.uint64),
        None if sequences is None else np.array(sequences, np.uint64),
    )


class LiveModel:
    """``index`` with what it holds: ``memory`` by number, and ``files``, each a list of texts with the deleted places."""

    def __init__(self, folder: Path, vocab_size: int, order_depth: int = 64) -> None:
        self.folder = folder
        self.vocab_size = vocab_size
        self.order_depth = order_depth
        self.index = _native.LiveIndex(vocab_size, order_depth, 2)
        self.memory: dict[int, Text] = {}
        self.files: list[tuple[list[Text], list[int]]] = []
        self._written = 0

    def append(self, texts: Sequence[Text], removed: Sequence[int] = ()) -> None:
        first = append(self.index, texts, removed)
        for number in removed:
            del self.memory[number]
        self.memory |= {first + place: text for place, text in enumerate(texts)}

    def remove(self, numbers: Sequence[int]) -> None:
        assert self.index.remove(np.array(numbers, np.uint64)) == len(numbers)
        for number in numbers:
            del self.memory[number]

    def flush(self, through: int, grouped_stay: bool = False) -> None:
        """Write the documents up to number ``through`` to a file; with ``grouped_stay``, only those without a group."""
        numbers = [each for each in self.memory if each <= through and not (grouped_stay and self.memory[each].group)]
        flushed = [self.memory.pop(number) for number in sorted(numbers)]
        if flushed:
            self.files.append((flushed, []))
        self._rebase(through, grouped_stay)

    def delete_in_file(self, file: int, places: Sequence[int]) -> None:
        self.files[file][1][:] = sorted({*self.files[file][1], *places})
        self._rebase(0)

    def drop_before(self, number: int) -> None:
        """Drop old segments, and learn from the index what is left."""
        dropped = self.index.drop_before(number)
        left = set(self.index.documents(0, 1 << 30)[0].tolist())
        gone = self.memory.keys() - left
        assert len(gone) == dropped
        assert all(each < number for each in gone)
        for each in gone:
            del self.memory[each]

    def texts(self, group: int | None = None) -> list[Sequence[int]]:
        """The tokens of all live documents, or of those of a group in memory."""
        filed = [text for texts, deleted in self.files for place, text in enumerate(texts) if place not in deleted]
        live = self.memory.values()
        if group is not None:
            return [text.tokens for text in live if text.group == group]
        return [text.tokens for text in (*filed, *live)]

    def check(self, context: Sequence[int], bounds: Bounds, group: int) -> None:
        """Compare the answers in all scopes with the oracle."""
        keys = np.array([group], np.uint64)
        lengths = {name: bounds[name] for name in ("max_match", "min_match")}
        whole = check_tree(self._draft(context, bounds), self.texts(), context, bounds)
        assert self.index.lookup([context], **lengths) == [oracle.lookup(self.texts(), context, **lengths)]
        of_group = check_tree(self._draft(context, bounds, keys, "group"), self.texts(group), context, bounds)
        expected = oracle.lookup(self.texts(group), context, **lengths)
        assert self.index.lookup([context], **lengths, groups=keys, scope="group") == [expected]
        both = paths(self._draft(context, bounds, keys, "group_first"))
        added = [node for node in whole if node not in of_group]
        if expected != (0, 0):
            assert [path for path, _ in both] == (of_group + added)[: bounds["max_nodes"]]
        else:
            assert [path for path, _ in both] == whole

    def check_documents(self) -> None:
        """Compare the documents in memory, and their number, with what was appended."""
        sequences, tokens, lengths, groups, origins, times = self.index.documents(0, 1 << 30)
        ends = np.cumsum(lengths).astype(int)
        found = {
            number: Text(tuple(tokens[end - int(length) : end].tolist()), group, origin, time)
            for number, end, length, group, origin, time in zip(
                sequences.tolist(), ends, lengths, groups.tolist(), origins, times.tolist(), strict=True
            )
        }
        assert found == self.memory
        stats = self.index.stats()
        assert stats["documents"] == len(self.memory)
        assert stats["tokens"] == sum(len(text.tokens) for text in self.memory.values())
        assert stats["oldest_sequence"] == min(self.memory, default=0)
        assert stats["segments"] <= 16

    def _draft(
        self, context: Sequence[int], bounds: Bounds, keys: np.ndarray | None = None, scope: str = "store"
    ) -> DraftTree:
        lengths = {name: bounds[name] for name in ("max_match", "min_match", "max_depth")}
        [tree] = self.index.draft(
            [context], **lengths, max_nodes=[bounds["max_nodes"]], source=1, groups=keys, scope=scope
        )
        scores = tree.scores
        assert np.all(np.diff(scores) <= 0)
        assert np.all((scores > 0) & (scores <= 1))
        return tree

    def _rebase(self, through: int, grouped_stay: bool = False) -> None:
        segments, deletions = [], []
        for texts, deleted in self.files:
            segments.append(self._write(texts))
            if deleted:
                deletions.append(self._write([texts[place] for place in deleted]))
        places = [np.array(deleted, np.uint32) for _, deleted in self.files]
        self.index.rebase(segments, deletions, places, through, grouped_stay)

    def _write(self, texts: Sequence[Text]) -> _native.Segment:
        self._written += 1
        path = str(self.folder / f"{self._written}.sfk")
        separator = 0xFFFFFFFF
        tokens = np.array([token for text in texts for token in (*text.tokens, separator)], np.uint32)
        if self.vocab_size <= 0xFFFF:
            tokens = tokens.astype(np.uint16)
        _native.write_segment(path, tokens, self.vocab_size, self.order_depth, bytes(32), b"", 1, None)
        return _native.Segment(path)


def paths(tree: DraftTree) -> list[tuple[tuple[int, ...], int]]:
    """Return (path, count) of each node of a tree's columns, in order."""
    found: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        found.append((found[parent] if parent >= 0 else ()) + (token,))
    assert tree.counts is not None
    return list(zip(found, tree.counts.tolist(), strict=True))


def check_tree(
    tree: DraftTree, documents: Sequence[Sequence[int]], context: Sequence[int], bounds: Bounds
) -> list[tuple[int, ...]]:
    """Compare a tree with the oracle; return the paths of its nodes."""
    expected = oracle.draft(documents, context, **bounds)
    assert paths(tree) == expected
    assert (tree.match_length, tree.match_count) == oracle.lookup(
        documents, context, bounds["max_match"], bounds["min_match"]
    )
    return [path for path, _ in expected]
