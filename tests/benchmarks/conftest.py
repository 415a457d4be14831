"""Inputs of measurements, on tiny data."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from tests.support.building import VOCAB_SIZE, make_texts, tokenizer_json, write_jsonl, write_tokenizer
from tests.support.forked import suffolk
from tests.support.tiny_models import tiny_model

TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer, a corpus, and a datastore of that corpus."""
    path = tmp_path_factory.mktemp("bench")
    corpus = write_jsonl(path / "corpus.jsonl", make_texts(60))
    done = suffolk("build", "--tokenizer", write_tokenizer(path), "--output", path / "store", corpus)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with the corpus's tokenizer. In fp64 any difference between outputs is a bug."""
    path = tmp_path_factory.mktemp("model")
    tiny_model("llama", vocab_size=VOCAB_SIZE).save_pretrained(path)
    (path / "plain.json").write_text(tokenizer_json())
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path / "plain.json"), eos_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    return path
