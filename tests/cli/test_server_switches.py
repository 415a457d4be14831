"""What strangers could see is on by default only where they cannot reach the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suffolk.cli.server_options import is_on
from suffolk.serving.net.config import ServerConfig
from suffolk.serving.net.endpoint import Endpoint

LOCAL, PUBLIC = Endpoint("127.0.0.1", 8000), Endpoint("0.0.0.0", 8000)


@pytest.mark.parametrize(
    ("choice", "endpoints", "more", "expected"),
    [
        ("auto", (LOCAL,), {}, True),
        ("auto", (LOCAL, None), {}, True),
        ("auto", (LOCAL, PUBLIC), {"insecure": True}, False),
        ("auto", (PUBLIC,), {"insecure": True, "access": Path("access.toml")}, True),
        ("off", (LOCAL,), {}, False),
        ("on", (PUBLIC,), {"insecure": True}, True),
    ],
)
def test_the_choice_and_the_addresses_decide(
    choice: str, endpoints: tuple[Endpoint | None, ...], more: dict[str, Any], expected: bool
) -> None:
    assert is_on(choice, ServerConfig((Endpoint("127.0.0.1", 7710),), **more), *endpoints) == expected
