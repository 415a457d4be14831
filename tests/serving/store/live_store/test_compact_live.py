"""Compacting the files of a live store: deleted text goes, and the age of documents stays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from suffolk.build_index.compact import compact
from suffolk.cli.main import main
from suffolk.datastore.documents import Document
from suffolk.datastore.manifest import read_manifest
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.store import LiveStore
from tests.serving.store.live_store.conftest import VOCABULARY
from tests.serving.store.live_store.test_live_bounds import first_tokens, without_keeper
from tests.support.stores import append_documents, make_store

TTL = 80


def segment_names(path: Path) -> list[str]:
    return [entry["name"] for entry in json.loads((path / "MANIFEST").read_bytes())["segments"]]


def test_compacted_live_documents_still_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "base"
    make_store(path, [[[40, 1]], [[41, 1]]], vocab_size=VOCABULARY).close()
    with LiveStore(path, LiveSettings(ttl_seconds=TTL, durability="none")) as store:
        without_keeper(store)
        start = time = store.writer.clock.now()
        monkeypatch.setattr(store.writer.clock, "now", lambda: time)
        for number in range(4):
            store.append_batch([Document(f"{number}", {}, np.array([number])), Document("x", {}, np.array([9]))])
            store.flush()
            time += 20
        store.delete(["x"])
        append_documents(path, [[42, 1]])
        append_documents(path, [[43, 1]])
        assert main(["compact", str(path), "--threads", "1"]) == 0
        shown = capsys.readouterr().out
        assert "segments   8 before, 6 now, of these 4 of live documents" in shown
        assert "removed    4 deleted documents" in shown
        store.refresh()
        assert first_tokens(store) == [40, 41, 0, 1, 2, 3, 42, 43]
        times = [entry.live_time for entry in read_manifest(path).segments]
        assert times == [None, *(start + 20 * number for number in range(4)), None]
        for gone in range(1, 5):
            time = start + TTL + 20 * (gone - 1) + 1
            store.maintenance.work()
            assert first_tokens(store) == [40, 41, *range(gone, 4), 42, 43]
    assert not compact(path, segments=2, threads=1).changed
    assert first_tokens_of(path) == [40, 41, 42, 43]


def first_tokens_of(path: Path) -> list[int]:
    with LiveStore(path) as store:
        return first_tokens(store)


def test_deleted_text_leaves_the_segments_of_a_live_store(tmp_path: Path) -> None:
    path = tmp_path / "base"
    make_store(path, [[[40, 1]]], vocab_size=VOCABULARY).close()
    secret = np.arange(30, 38, dtype=np.uint16)

    def holds() -> bool:
        return any(secret.tobytes() in file.read_bytes() for file in path.rglob("*") if file.is_file())

    with LiveStore(path, LiveSettings(durability="none")) as store:
        store.append_batch([Document("secret", {}, secret), Document("other", {}, np.array([1]))])
        store.flush()
        store.delete(["secret"])
        store.scrub()
        assert holds()
        assert compact(path, threads=1).removed_documents == 1
        assert not holds()
        store.append([2])
        store.flush()  # segments without deleted documents are merged again
        assert len(segment_names(path)) == 2
        assert first_tokens(store) == [40, 1, 2]
