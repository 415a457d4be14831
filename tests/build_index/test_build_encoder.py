"""Tests the encoding of texts: the fast tokenizer, its check, and the fallback to Hugging Face tokenizers."""

from __future__ import annotations

import json

import pytest
from kitoken import Kitoken
from tokenizers import Tokenizer, models, pre_tokenizers

from suffolk.build_index.block import Texts
from suffolk.build_index.encode_block import BlockEncoder, EncodeSetup
from suffolk.build_index.encoder import Encoder, added_pattern
from suffolk.build_index.proof import TextSample, load_fast, prove
from suffolk.datastore.errors import Unsupported
from tests.support.build_blocks import options
from tests.support.building import SPECIALS, make_texts, tokenize, tokenizer_json


def make_encoder() -> Encoder:
    tokenizer = Tokenizer.from_str(tokenizer_json())
    fast = load_fast(tokenizer)
    assert isinstance(fast, Kitoken)
    return Encoder(tokenizer, fast)


@pytest.mark.parametrize("text", ["x <|im_end|> y", "'\n'medium'", "a\t's b", *SPECIALS])
def test_risky_documents_go_to_hugging_face(text: str) -> None:
    ids, counts = make_encoder().encode([text, "plain text"], seed=1)
    assert counts.routed == 1
    assert ids == [tokenize(text), tokenize("plain text")]


def test_whitespace_tokens_are_no_risk() -> None:
    pattern = added_pattern(["\n\n", "    ", "<|x|>"])
    assert pattern.search("a\n\nb    c") is None
    assert pattern.search("a <|x|> b")
    assert added_pattern([]).search("anything") is None


def test_a_failed_check_sends_the_whole_block_to_hugging_face() -> None:
    """The fast tokenizer of this test splits every character. So no block may use its ids."""
    definition = json.loads(tokenizer_json())
    every = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
    definition["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [every, definition["pre_tokenizer"]]}
    other = Kitoken.from_tokenizers(json.dumps(definition).encode())
    encoder = Encoder(Tokenizer.from_str(tokenizer_json()), other)
    ids, counts = encoder.encode(make_texts(8), seed=3)
    assert counts.differed > 0
    assert ids == [tokenize(text) for text in make_texts(8)]


def test_the_proof_passes_and_fails_for_good_reasons() -> None:
    tokenizer = Tokenizer.from_str(tokenizer_json())
    sample = TextSample(make_texts(50), 1.0)
    good = prove(tokenizer, sample, "auto")
    assert good.fast
    assert good.documents == 50
    assert good.reason.startswith("equal ids for all 50 sampled documents")
    assert not prove(tokenizer, sample, "exact").fast
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "def": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    unread = prove(words, sample, "auto")
    assert not unread.fast
    assert "fast" in unread.reason


def test_a_tokenizer_without_an_id_for_a_word_is_refused() -> None:
    """Regression: the exception of the tokenizer used to escape from the build."""
    words = Tokenizer(models.WordLevel({"def": 0}))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(
        Unsupported, match=r"it cannot encode the corpus \(.*\); give one that has an id for every text"
    ):
        prove(words, TextSample(["def other"], 1.0), "auto")
    encoder = BlockEncoder(EncodeSetup(options("a"), words.to_str(), False, 9))
    with pytest.raises(Unsupported, match="it cannot encode the corpus"):
        encoder.encode(Texts((("a", "def other"),)))
