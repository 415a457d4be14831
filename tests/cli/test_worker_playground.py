"""Who gets the playground: ``--playground auto`` leaves it out where strangers can reach the worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suffolk.cli.worker import shows_traces
from suffolk.serving.transport.config import ServerConfig
from suffolk.serving.transport.endpoint import Endpoint

LOCAL, PUBLIC = Endpoint("127.0.0.1", 8000), Endpoint("0.0.0.0", 8000)


@pytest.mark.parametrize(
    ("choice", "http", "more", "expected"),
    [
        ("auto", LOCAL, {}, True),
        ("auto", PUBLIC, {"insecure": True}, False),
        ("auto", PUBLIC, {"insecure": True, "access": Path("access.toml")}, True),
        ("auto", None, {}, False),
        ("off", LOCAL, {}, False),
        ("on", PUBLIC, {"insecure": True}, True),
    ],
)
def test_the_choice_and_the_address_decide(
    choice: str, http: Endpoint | None, more: dict[str, Any], expected: bool
) -> None:
    assert shows_traces(choice, ServerConfig((Endpoint("127.0.0.1", 7710),), http, **more)) == expected
