"""Texts of single tokens: incomplete characters, and decoders that drop the first space."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from suffolk.datastore.documents import Occurrence
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.tokenizer import node_texts, token_texts, window_texts
from tests.support.brute_force import BruteForceRetriever
from tests.support.stores import byte_tokenizer


class TextStore(BruteForceRetriever):
    """A retriever with a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__([[0]], tokenizer.get_vocab_size())
        self._known = tokenizer

    def tokenizer(self) -> Tokenizer:  # type: ignore[override]
        return self._known


def byte_store() -> TextStore:
    return TextStore(byte_tokenizer())


def word_store() -> TextStore:
    tokenizer = Tokenizer(models.WordLevel({"▁one": 0, "▁two": 1, "s": 2}, unk_token="s"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return TextStore(tokenizer)


def tree(tokens: list[int], parents: list[int]) -> DraftTree:
    ones = np.ones(len(tokens), np.uint32)
    return DraftTree(np.array(tokens, np.int32), np.array(parents, np.int32), ones.astype(np.float32), ones)


@pytest.mark.parametrize("text", ["", "a", "déjà", "x 日本 y", "🙂🙂"])
def test_texts_of_tokens_add_up(text: str) -> None:
    store = byte_store()
    texts = token_texts(store, store.encode(text))
    assert len(texts) == len(text.encode())
    assert "".join(each for each in texts if each != "\ufffd") == text


def test_a_character_of_two_tokens_is_shown_with_the_second() -> None:
    store = byte_store()
    first, second = store.encode("é")
    [letter] = store.encode("a")
    assert node_texts(store, [letter], tree([first, second, letter, letter], [-1, 0, 1, -1])) == [
        "\ufffd",
        "é",
        "a",
        "a",
    ]
    assert node_texts(store, [first], tree([second], [-1])) == ["é"]


def test_the_space_before_a_word_is_kept() -> None:
    store = word_store()
    assert node_texts(store, [0], tree([1, 2, 0], [-1, 0, -1])) == [" two", "s", " one"]
    assert node_texts(store, [], tree([1], [-1])) == ["two"]


def test_an_occurrence_has_three_parts() -> None:
    store = byte_store()
    ids = np.array(store.encode("a é b ü c"), np.uint32)
    place = Occurrence("", 0, 5, None, {}, ids[5:], ids[:5])
    assert window_texts(store, place, 4) == ("a é ", "b ü", " c")
    cut = Occurrence("", 0, 3, None, {}, ids[3:], ids[:3])
    assert window_texts(store, cut, 2) == ("a ", "é ", "b ü c")
