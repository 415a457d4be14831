"""Runs the checks of OpenAI's Python client that ``make clients`` runs for all clients, against a tiny model."""

from __future__ import annotations

from tests.clients.checks import CHECKS, Worker
from tests.serving.worker.openai.test_tools import TEMPLATE
from tests.support.grammars import ending_target
from tests.support.worker_server import working


def test_openais_python_client() -> None:
    target = ending_target()
    target.tokenizer.chat_template = TEMPLATE
    with working(target) as server:
        for name, check in CHECKS["openai"][1](Worker(f"http://{server.http}", "")):
            print(name)  # shown if the check fails
            check()
