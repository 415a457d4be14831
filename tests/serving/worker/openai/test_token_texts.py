"""Tests the texts and bytes of single tokens."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from suffolk.serving.decoding.engine.sampling.log_probabilities import LogProbability
from suffolk.serving.worker.openai.token_texts import TokenTexts

PIECES = ("<unk>", "<0xF0>", "\u2581true", "true", "\u2581", "\u2581\u2581")


def test_tokens_of_sentencepiece_keep_their_spaces() -> None:
    """Regression: ' true' was 'true', so that the tokens did not join to the text, and took the name of another token."""
    tokenizer = Tokenizer(models.BPE({piece: id for id, piece in enumerate(PIECES)}, [], unk_token="<unk>"))
    spaces, start = decoders.Replace("\u2581", " "), decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence([spaces, decoders.ByteFallback(), decoders.Fuse(), start])
    texts = TokenTexts(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    assert [texts.text(token) for token in range(2, 6)] == [" true", "true", " ", "  "]
    assert texts.entry(LogProbability(2, -1.0, ()))["bytes"] == list(b" true")
    assert texts.top(LogProbability(2, -1.0, ((2, -1.0), (3, -2.0)))) == {" true": -1.0, "true": -2.0}
    assert texts.entry(LogProbability(1, -1.0, ()))["bytes"] == [0xF0]
