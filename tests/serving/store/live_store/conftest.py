"""A small vocabulary, and stores of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.store import LiveStore, create_live_store, open_live_store

VOCABULARY = 50
OpenStore = Callable[..., LiveStore]


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[OpenStore]:
    """A function that opens the store ``tmp_path/store`` (made when it is missing) with settings; all are closed at the end."""
    opened: list[LiveStore] = []

    def open_one(**settings: Any) -> LiveStore:
        for store in opened:
            store.close()
        opened.clear()
        path, chosen = tmp_path / "store", LiveSettings(**{"durability": "none", "threads": 1, **settings})
        made = (
            open_live_store(path, chosen)
            if path.exists()
            else create_live_store(path, vocab_size=VOCABULARY, settings=chosen)
        )
        opened.append(made)
        return made

    yield open_one
    for store in opened:
        store.close()
