"""Runs the checks of OpenAI's Python client that ``make clients`` runs for all clients, against a tiny model."""

from __future__ import annotations

import pytest

from tests.clients.checks import CHECKS, Worker
from tests.serving.worker.openai.test_tools import TEMPLATE
from tests.support.grammars import ending_target
from tests.support.worker_server import working


@pytest.mark.parametrize("marks", ["none", "<think> </think>"])
def test_openais_python_client(marks: str) -> None:
    """A random model that may think would do so in a required call, too. So only one check has marks."""
    target = ending_target()
    target.tokenizer.chat_template = TEMPLATE
    with working(target, reasoning=marks) as server:
        for name, check in CHECKS["openai"][1](Worker(f"http://{server.http}", "")):
            if (name == "reasoning") == (marks != "none"):
                print(name)  # shown if the check fails
                check()
