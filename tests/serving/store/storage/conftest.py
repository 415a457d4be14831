"""Stores in object storage: one S3 server for all tests of a process, and a bucket for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.datastore.manifest import tokenizer_name
from suffolk.datastore.tokenizer import fingerprint
from tests.support.s3_server import S3Server
from tests.support.stores import make_store, random_documents, word_tokenizer


@pytest.fixture
def url(s3: S3Server) -> str:
    """A place in a new bucket."""
    return f"{s3.make_bucket()}/code"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A datastore of three segments of about 1 MB and their tokenizer."""
    path = tmp_path / "store"
    tokenizer = word_tokenizer()
    mark = fingerprint(tokenizer)
    documents = [random_documents(80, 4000, seed, 6) for seed in range(3)]
    make_store(path, documents, vocab_size=6, tokenizer=mark).close()
    tokenizer.save(str(path / tokenizer_name(mark)))
    return path
