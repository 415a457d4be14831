"""A live store on a file system that is full: writes are refused, reads go on, and all works again when there is space."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from suffolk.datastore.documents import Document
from suffolk.datastore.errors import ResourceExhausted
from suffolk.serving.store.live_store.check_log import check_log
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.store import LiveStore, create_live_store, open_live_store
from tests.support.waiting import until

SETTINGS = LiveSettings(durability="always", flush_tokens=0, threads=1)
TOKENS = 2000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB in memory."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def append(store: LiveStore, number: int, group: str | None) -> None:
    store.append_batch([Document(f"{number}", {}, np.full(TOKENS, number % 50))], group)


def fill(store: LiveStore, group: str | None) -> int:
    """Append until the disk is full; return the number of documents."""
    for number in range(1000):
        try:
            append(store, number, group)
        except ResourceExhausted:
            return number
    raise AssertionError("the disk is never full")


@pytest.mark.parametrize("group", [None, "g"])
def test_appends_work_again_when_there_is_space(disk: Path, group: str | None) -> None:
    store = create_live_store(disk / "store", vocab_size=50, settings=SETTINGS)
    filler = disk / "filler"
    filler.write_bytes(bytes(600_000))  # more than a rewritten log takes: a thread may write one meanwhile
    count = fill(store, group)
    log = check_log(store.path)
    for _ in range(2):
        with pytest.raises(ResourceExhausted, match="the change is refused, and reads go on; free disk space"):
            append(store, 1, group)
    assert check_log(store.path) == log
    assert log.torn is None
    assert (log.documents, store.stats().documents) == (count, count)
    assert store.lookup([3, 3]) == (2, (TOKENS - 1) * sum(number % 50 == 3 for number in range(count)))
    for refused in (store.scrub, store.flush if group is None else store.scrub):
        with pytest.raises(ResourceExhausted):
            refused()
    filler.unlink()
    for number in range(count, count + 20):
        append(store, number, group)
    store.close()
    with open_live_store(disk / "store", SETTINGS) as store:
        assert [each.source for each in store.documents()] == [f"{number}" for number in range(count + 20)]


def test_a_publication_that_found_no_space_is_repeated(disk: Path) -> None:
    with create_live_store(
        disk / "store", vocab_size=50, settings=replace(SETTINGS, flush_tokens=10 * TOKENS)
    ) as store:
        filler = disk / "filler"
        filler.write_bytes(bytes(850_000))
        count = fill(store, None)
        assert count > 10
        until(lambda: "No space left" in str(store.stats().background_error))
        assert (store.generation, store.stats().documents) == (0, count)
        filler.unlink()
        until(lambda: store.generation == 1 and store.stats().background_error is None)
        assert [each.source for each in store.documents()] == [f"{number}" for number in range(count)]
