"""Tests how the files of a datastore are kept in memory.

Every policy gives the same answers, and a refused policy gives a clear error.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from suffolk.cli.main import main
from suffolk.datastore.datastore import RESIDENCIES, open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.net.admission import AdmissionController
from suffolk.serving.store.draft_service.metrics import DraftMetrics
from tests.support.brute_force import BruteForceRetriever
from tests.support.stores import make_store
from tests.support.waiting import until

DOCUMENTS = np.random.default_rng(0).integers(0, 500, (600, 400)).tolist()
PR_CAPBSET_DROP, CAP_IPC_LOCK = 24, 14


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("residency") / "store"
    make_store(path, [DOCUMENTS[:300], DOCUMENTS[300:]], vocab_size=500).close()
    return path


def forget(path: Path) -> None:
    """Drop the system's copy of the files, so that the next reader finds them on the disk alone."""
    for file in (path / "segments").iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def file_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in (path / "segments").iterdir())


@pytest.mark.parametrize("residency", RESIDENCIES)
def test_answers_do_not_depend_on_it(path: Path, residency: str) -> None:
    forget(path)
    with open_datastore(path, residency) as store:
        assert store.lookup(DOCUMENTS[5][:12]) == (12, 1)
        tree = store.draft(DOCUMENTS[5][:12], max_depth=3)
        assert tree.tokens.tolist() == DOCUMENTS[5][12:15]
        store.verify("full")
        assert store.resident_bytes() == file_bytes(path)


def test_mapped_files_come_in_page_by_page_and_warm_ones_whole(path: Path) -> None:
    """Regression: read-ahead used to read 128 KiB for each page that a cold search touched."""
    size = file_bytes(path)
    forget(path)
    with open_datastore(path) as store:
        store.lookup(DOCUMENTS[5][:12])
        resident = store.resident_bytes()
        assert resident is not None
        assert resident < size / 4
    forget(path)
    with open_datastore(path, "warm") as store:
        until(lambda: store.resident_bytes() == size)


def test_what_is_small_beside_the_memory_that_is_left_is_read_in(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a service whose files were on disk used to answer after its deadline.

    A whole text was then decoded without drafts.
    """
    size = file_bytes(path)
    asked: list[bool] = []
    monkeypatch.setattr("suffolk.datastore._native.warm", lambda parts, whole: asked.append(whole))
    for memory in (3 * size, 5 * size):
        monkeypatch.setattr("suffolk.datastore.datastore.host_memory", lambda memory=memory: memory)
        open_datastore(path, "auto").close()
    assert asked == [False, True]


def test_locked_files_stay_in_memory(path: Path) -> None:
    with open_datastore(path, "locked"):
        locked = sum(int(line.split()[1]) for line in _smaps() if line.startswith("Locked:"))
        assert locked * 1024 >= file_bytes(path)
    assert not any(int(line.split()[1]) for line in _smaps() if line.startswith("Locked:"))


def test_a_refused_lock_names_the_limit_and_what_to_do(path: Path) -> None:
    def without_rights() -> None:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))

    command = [sys.executable, "-m", "suffolk", "serve", str(path), "--residency", "locked", "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=without_rights, timeout=60)
    assert done.returncode == 2
    assert "000000.seg: cannot lock" in done.stderr
    assert (
        "(RLIMIT_MEMLOCK) is 65536 bytes: raise it (ulimit -l, LimitMEMLOCK=), or choose residency 'warm'"
        in done.stderr
    )


def test_other_policies_are_refused(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="residency is 'hot'; it must be one of auto, mmap, warm, locked"):
        open_datastore(path, "hot")


def test_info_shows_what_is_in_memory(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_datastore(path) as store:
        store.verify("full")
    assert main(["info", str(path)]) == 0
    assert re.search(rf"^resident_bytes +{file_bytes(path):,}$", capsys.readouterr().out, re.MULTILINE)


def test_metrics_tell_page_faults_and_what_is_in_memory(path: Path) -> None:
    forget(path)
    with open_datastore(path) as store:
        metrics = DraftMetrics({"words": store, "remote": BruteForceRetriever([[1, 2]], 5)}, AdmissionController(1, ""))
        before = _samples(metrics)
        for document in DOCUMENTS[:20]:
            store.lookup(document[:12])
        after = _samples(metrics)
        assert after['suffolk_page_faults_total{kind="major"}'] > before['suffolk_page_faults_total{kind="major"}']
        assert after['suffolk_page_faults_total{kind="minor"}'] >= before['suffolk_page_faults_total{kind="minor"}'] > 0
        resident = 'suffolk_datastore_resident_bytes{datastore="words"}'
        assert before[resident] < after[resident] == store.resident_bytes()
        assert not any("remote" in name for name in after if "resident" in name)


def _samples(metrics: DraftMetrics) -> dict[str, float]:
    lines = metrics.exposition().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def _smaps() -> list[str]:
    return Path("/proc/self/smaps").read_text().splitlines()
