"""The order in which a live store writes, flushes, renames and removes files: what docs/design/live-store.md states."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from suffolk.serving.store.live_store.store import LiveStore
from tests.serving.store.live_store.conftest import OpenStore

CALLS = ("write", "fsync", "fdatasync", "rename", "replace", "unlink")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The calls on files below ``live/log`` and on ``MANIFEST``, as ``CALL NAME``; flushes of other files are left out."""
    seen: list[str] = []

    def watch(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(target: Any, *arguments: Any, **options: Any) -> Any:
            path = Path(os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else target)
            if path.name == "log" or path.parent.name == "log" or path.name.startswith("MANIFEST"):
                shown = Path(arguments[0]) if name in ("rename", "replace") else path
                seen.append(f"{name} {shown.name.lstrip('0')}")
            return original(target, *arguments, **options)

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, watch(name))
    yield seen
    monkeypatch.undo()


def made(open_store: OpenStore) -> LiveStore:
    store = open_store(durability="always")
    store.maintenance_thread.close()
    store.append([1, 2, 3])
    return store


def test_an_append_is_synced_before_its_answer(open_store: OpenStore, steps: list[str]) -> None:
    store = made(open_store)
    steps.clear()
    store.append([4])
    assert steps == ["write 1.log", "fdatasync 1.log"]


def test_a_new_file_is_on_disk_before_its_first_record(open_store: OpenStore, steps: list[str]) -> None:
    store = made(open_store)
    store.writer.log.file_bytes = 1
    steps.clear()
    store.append([4])
    assert steps == ["fdatasync 1.log", "write 2.log", "fsync 2.log", "fsync log", "write 2.log", "fdatasync 2.log"]


def test_a_checkpoint_is_on_disk_before_it_replaces_files(open_store: OpenStore, steps: list[str]) -> None:
    store = made(open_store)
    steps.clear()
    store.scrub()
    assert steps[-4:] == ["fsync 1.checkpoint.tmp", "rename 1.checkpoint", "fsync log", "unlink 1.log"]


def test_a_generation_is_on_disk_before_its_log_is_removed(open_store: OpenStore, steps: list[str]) -> None:
    store = made(open_store)
    for _ in range(2):
        store.append([4])
        store.flush()
    steps.clear()
    store.append([5])
    store.flush()
    manifest = steps.index("replace MANIFEST")
    assert steps.index("fsync MANIFEST.tmp") < manifest
    removed = [place for place, step in enumerate(steps) if step.startswith("unlink") and step.endswith(".log")]
    assert removed
    assert min(removed) > manifest
    assert all(steps[place + 1] == "fsync log" for place in removed)
