"""A worker with OpenAI's API on a tiny model, for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.worker.server import WorkerServer
from tests.support.openai_server import client_of
from tests.support.worker_server import talking_target, working


@pytest.fixture(scope="module")
def target() -> Target:
    return talking_target()


@pytest.fixture(scope="module")
def server(target: Target) -> Iterator[WorkerServer]:
    with working(target, {"prompt-lookup": PromptLookupDrafter(target.vocab_size)}) as server:
        yield server


@pytest.fixture
def client(server: WorkerServer) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client
