"""Tests grammars over gRPC."""

from __future__ import annotations

import re

import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.loop.prompt import encode_text
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.grammar import Grammar
from suffolk.serving.decoding.engine.sampling.grammar_compiler import GrammarCompiler
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.net.proto import decode_pb2
from suffolk.serving.worker.client import WorkerClient
from suffolk.serving.worker.settings import unpack_settings
from tests.support.drafters import eager_decoder


def test_the_vocabulary_is_read_before_there_are_requests(
    client: WorkerClient, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker reads the vocabulary at its start, because reading it stops all threads for a second."""
    monkeypatch.setattr(GrammarCompiler, "_read_vocabulary", None)
    list(client.generate("ab", SamplingSettings(3, grammar=Grammar("regex", "[ab]+"))))


def test_a_grammar_is_served(client: WorkerClient, target: Target) -> None:
    settings = SamplingSettings(30, 1.0, seed=3, grammar=Grammar("regex", "[ab]{3,9}!"))
    generation = client.generate("ab", settings)
    text = "".join(step.text for step in generation)
    assert re.fullmatch("[ab]{3,9}!", text)
    assert generation.stats.finish == "stop"
    run = eager_decoder(target, None).generate(encode_text(target, "ab"), settings)
    list(run)
    assert generation.tokens == run.tokens


def test_a_grammar_that_the_library_refuses_is_an_invalid_argument(client: WorkerClient) -> None:
    grammar = Grammar("json_schema", '{"type": "objekt"}')
    with pytest.raises(InvalidArgument, match="Invalid type: objekt"):
        list(client.generate("ab", SamplingSettings(grammar=grammar)))
    message = decode_pb2.SamplingSettings(grammar=decode_pb2.Grammar(kind="xml"))
    with pytest.raises(InvalidArgument, match="grammar.kind is 'xml'"):
        unpack_settings(message)
