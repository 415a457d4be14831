"""Tokenizers are loaded by name and compared by fingerprint."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from suffolk.datastore.documents import Occurrence
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Corruption, NotFound
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer, node_texts, token_texts, vocab_size, window_texts
from tests.support.brute_force import BruteForceRetriever
from tests.support.building import VOCAB_SIZE, tokenizer_json, write_tokenizer
from tests.support.stores import byte_tokenizer


def test_folder_and_file_give_the_same_tokenizer(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path)
    assert fingerprint(load_tokenizer(folder)) == fingerprint(load_tokenizer(f"{folder}/tokenizer.json"))
    assert vocab_size(load_tokenizer(folder)) == VOCAB_SIZE


def test_truncation_padding_and_dropout_are_off(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_str(tokenizer_json())
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=100)
    tokenizer.model.dropout = 0.9
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = load_tokenizer(tmp_path)
    text = "def value(self): return self.value " * 5
    expected = Tokenizer.from_str(tokenizer_json()).encode(text).ids
    assert len(expected) > 4
    assert loaded.encode(text).ids == expected


def test_fingerprint_ignores_notation_and_templates() -> None:
    definition = json.loads(tokenizer_json())
    definition["model"]["merges"] = [
        " ".join(merge) for merge in definition["model"]["merges"]
    ]  # the format of older versions
    definition["decoder"] = None
    definition["model"]["vocab"] = dict(reversed(definition["model"]["vocab"].items()))
    other = Tokenizer.from_str(json.dumps(definition))
    assert fingerprint(other) == fingerprint(Tokenizer.from_str(tokenizer_json()))


def test_fingerprint_of_transformers_backend_is_the_same(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{write_tokenizer(tmp_path)}/tokenizer.json")
    assert fingerprint(wrapped.backend_tokenizer) == fingerprint(load_tokenizer(tmp_path / "tokenizer"))


@pytest.mark.parametrize("change", ["merge", "id", "added"])
def test_fingerprint_notices_what_changes_ids(change: str) -> None:
    definition = json.loads(tokenizer_json())
    if change == "merge":
        definition["model"]["merges"][-2:] = definition["model"]["merges"][-2:][::-1]
    elif change == "id":
        vocab = definition["model"]["vocab"]
        vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    other = Tokenizer.from_str(json.dumps(definition))
    if change == "added":
        other.add_tokens([AddedToken("<new>", special=True)])
    assert fingerprint(other) != fingerprint(Tokenizer.from_str(tokenizer_json()))


def test_missing_tokenizers_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"tokenizer /no/such/place: no such file or folder; give a Hugging Face folder"):
        load_tokenizer("/no/such/place")
    with pytest.raises(NotFound, match="the folder has no tokenizer.json; give the model folder"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(Corruption, match="tokenizer.json: not a tokenizer.json"):
        load_tokenizer(tmp_path)


def test_a_path_in_the_home_of_nobody_is_not_found() -> None:
    with pytest.raises(
        NotFound, match=r"^~nobody-here/x: no home folder is known for ~nobody-here; write the whole path$"
    ):
        load_tokenizer("~nobody-here/x")


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
