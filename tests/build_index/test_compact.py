"""Tests compaction. Answers stay the same, no trace of deleted documents remains, and the old datastore stays until the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffolk.build_index.builder import build
from suffolk.build_index.compact import compact
from suffolk.build_index.delete import delete
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.progress import WorkProgress
from suffolk.cli.main import main
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, Unavailable
from suffolk.datastore.manifest import read_manifest, writer_lock
from suffolk.serving.store.live_store.store import create_live_store
from tests.support.interrupts import default_interrupts
from tests.support.waiting import until

VOCAB_SIZE = 60
END = 59


def make_store(folder: Path, segments: int, seed: int = 1) -> Path:
    """A datastore of several builds, with documents that repeat across builds."""
    generator = np.random.default_rng(seed)
    shared = generator.integers(0, 50, 200)
    store = folder / "store"
    for number in range(segments):
        parts = []
        for _ in range(generator.integers(2, 8)):
            start = generator.integers(0, 150)
            parts += [shared[start : start + generator.integers(0, 50)], generator.integers(0, 5, 30), [END]]
        path = folder / f"part-{number:02}.npy"
        np.save(path, np.concatenate(parts).astype(np.uint16))
        build(
            BuildOptions(
                (str(path),), store, mode="append" if number else "new", vocab_size=VOCAB_SIZE, end_of_document=END
            )
        )
    assert len(read_manifest(store).segments) == segments
    return store


def answers(datastore: Datastore) -> dict[str, Any]:
    """Return all documents with their origins, and the results of many lookups and drafts."""
    generator = np.random.default_rng(7)
    documents = [(found.source, dict(found.metadata), found.tokens.tolist()) for found in datastore.documents()]
    contexts = [generator.integers(0, 5, 4).tolist() for _ in range(100)]
    contexts += [tokens[: generator.integers(1, 40)] for _, _, tokens in documents if tokens]
    trees = datastore.draft_batch(contexts)
    return {
        "documents": documents,
        "lookups": datastore.lookup_batch(contexts),
        "drafts": [(tree.tokens.tolist(), tree.parents.tolist(), tree.counts.tolist()) for tree in trees],
        "sources": sorted(str(found.source) for found in datastore.occurrences([1, 2], 10_000)),
    }


def files(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("before", "wanted"), [(1, 1), (3, 1), (16, 1), (16, 5)])
@pytest.mark.parametrize("with_deletions", [False, True])
def test_answers_are_the_same_before_and_after(tmp_path, before, wanted, with_deletions):
    store = make_store(tmp_path, before)
    if with_deletions:
        sources = [str(found.source) for found in open_datastore(store).documents()]
        assert delete(store, ids=sources[::3]).documents
    with open_datastore(store) as opened:
        expected = answers(opened)
        report = compact(store, segments=wanted, threads=2)
        assert answers(opened) == expected  # a reader keeps the generation that it opened
    manifest = read_manifest(store)
    assert report.changed == (before > wanted or with_deletions)
    assert (len(manifest.segments), manifest.deletions) == (wanted, ())
    assert sorted(path.name for path in (store / "segments").iterdir()) == sorted(
        entry.name for entry in manifest.segments
    )
    assert not (store / "build").exists()
    with open_datastore(store) as opened:
        opened.verify("full")
        assert answers(opened) == expected
        assert opened.info()["documents"] == len(expected["documents"]) == report.documents
        assert opened.info()["deleted_documents"] == 0
        assert (report.removed_documents > 0) == with_deletions


def test_a_segment_that_nothing_is_left_of_goes(tmp_path):
    store = make_store(tmp_path, 3)
    first = read_manifest(store).segments[0]
    with open_datastore(store) as opened:
        delete(store, ids=[str(origin.source) for name, _, origin in opened.origins() if name == first.name])
    compact(store, segments=3)
    assert len(read_manifest(store).segments) == 2
    open_datastore(store).verify("full")


def test_a_datastore_of_which_nothing_is_left_becomes_one_empty_document(tmp_path):
    store = make_store(tmp_path, 2)
    with open_datastore(store) as opened:
        text = opened.read_document(opened.manifest.segments[0].name, 0).tobytes()
    delete(store, where=["source~*"])
    report = compact(store)
    assert (report.segments, report.documents, report.tokens) == (1, 1, 0)
    assert report.removed_documents > 1
    assert not any(text in content for content in files(store).values())
    with open_datastore(store) as opened:
        opened.verify("full")
        assert [document.tokens.tolist() for document in opened.documents()] == [[]]
        assert opened.lookup([1]) == (0, 0)
    assert not compact(store).changed


def test_a_live_datastore_of_which_nothing_is_left_goes_on(tmp_path):
    with create_live_store(tmp_path / "live", vocab_size=VOCAB_SIZE) as live:
        live.append([1, 2, 3], id="a")
        live.flush()
        live.delete(["a"])
        compact(tmp_path / "live")
        live.refresh()
        live.append([4, 5, 6])
        live.flush()
        assert (live.lookup([1]), live.lookup([4])) == ((0, 0), (1, 1))
    with open_datastore(tmp_path / "live") as opened:
        opened.verify("full")


def test_nothing_to_do_says_so_and_exits_0(tmp_path, capsys):
    store = make_store(tmp_path, 2)
    assert main(["compact", str(store), "--segments", "2"]) == 0
    assert "nothing to do: 2 segments, no deleted documents" in capsys.readouterr().out
    assert main(["compact", str(store)]) == 0
    assert "2 before, 1 now" in capsys.readouterr().out
    before = files(store)
    assert main(["compact", str(store), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] is False
    assert files(store) == before


def test_a_compacted_datastore_can_be_added_to_and_compacted_again(tmp_path):
    store = make_store(tmp_path, 3)
    compact(store)
    for _ in range(2):
        options = BuildOptions((str(tmp_path / "part-00.npy"),), store, mode="append", end_of_document=END)
        build(options)
    with open_datastore(store) as opened:
        expected = answers(opened)
    compact(store)
    with open_datastore(store) as opened:
        assert answers(opened) == expected


@pytest.mark.parametrize("call", [1, 2, 5])
def test_an_interruption_leaves_the_datastore_as_it_was(tmp_path, call):
    store = make_store(tmp_path, 4)
    before = files(store)
    calls = 0

    class Interruption(WorkProgress):
        def advance(self, work: str, share: float, facts: str) -> None:
            nonlocal calls
            calls += 1
            if calls == call:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact(store, progress=Interruption())
    assert files(store) == before
    assert compact(store).segments == 1


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_process_leaves_the_old_generation_or_the_new_one(tmp_path, end):
    store = make_store(tmp_path, 3)
    with open_datastore(store) as opened:
        expected = answers(opened)
    slow = (
        "import sys, time\nfrom suffolk.build_index.compact import compact\n"
        "from suffolk.build_index.progress import WorkProgress\n"
        "WorkProgress.advance = lambda *_: time.sleep(0.3)\n"
        "compact(sys.argv[1], 1, 1)"
    )
    with default_interrupts():
        process = subprocess.Popen([sys.executable, "-c", slow, str(store)], stderr=subprocess.PIPE)
    until(lambda: (store / "build/segments").is_dir() or process.poll() is not None)
    process.send_signal(end)
    process.communicate()
    assert process.returncode != 0
    with open_datastore(store) as opened:
        assert answers(opened) == expected
    assert compact(store).segments == 1
    with open_datastore(store) as opened:
        assert answers(opened) == expected


def test_an_interrupted_build_is_not_destroyed(tmp_path):
    store = make_store(tmp_path, 2)
    (store / "build/segments").mkdir(parents=True)
    (store / "build/journal.jsonl").write_text('{"settings": {"generation": 3}}\n{"entry": {}}\n')
    (store / "build/segments/g000003-00000.segment").write_bytes(b"work of hours")
    before = files(store)
    with pytest.raises(Unavailable, match="interrupted build; finish it .*; then compact"):
        compact(store)
    assert files(store) == before


def test_damage_is_found_before_it_gets_sound_checksums(tmp_path):
    store = make_store(tmp_path, 2)
    path = store / "segments" / read_manifest(store).segments[1].name
    damaged = bytearray(path.read_bytes())
    damaged[300] ^= 1
    path.unlink()
    path.write_bytes(damaged)
    before = files(store)
    with pytest.raises(Corruption, match="checksum of bytes 0 to"):
        compact(store)
    assert files(store) == before


def test_what_cannot_be_compacted_is_refused(tmp_path):
    with pytest.raises(NotFound):
        compact(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    store = make_store(tmp_path, 1)
    with pytest.raises(InvalidArgument, match="segments is 0; it must be 1 or more"):
        compact(store, segments=0)
    with writer_lock(store), pytest.raises(Unavailable, match="another process"):
        compact(store)
