"""Builds that are killed or interrupted at any time can be resumed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from suffolk.build_index.builder import build
from suffolk.build_index.options import BuildOptions
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.failpoints import FAILPOINT_VARIABLE
from suffolk.datastore.manifest import read_manifest
from tests.support.building import (
    ROOT,
    command,
    make_texts,
    read_documents,
    segment_bytes,
    tokenize,
    write_jsonl,
    write_tokenizer,
)
from tests.support.forked import suffolk
from tests.support.interrupts import default_interrupts

TEXTS = 1800
SEGMENT_TOKENS = 36_000
WAIT = 120
"""Timeout in seconds. Only a hang takes longer."""


def arguments(folder: Path, store: Path, *more: str) -> list[str]:
    return [
        "build", "--tokenizer", str(folder / "tokenizer"), "--output", str(store), "--threads", "2",
        "--segment-tokens", str(SEGMENT_TOKENS), *more, *(str(path) for path in sorted(folder.glob("shard-*"))),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve shards, their tokenizer, and a reference datastore built in one go."""
    folder = tmp_path_factory.mktemp("corpus")
    write_tokenizer(folder)
    for shard in range(12):
        write_jsonl(folder / f"shard-{shard:02}.jsonl", make_texts(TEXTS // 12, words=400, seed=shard))
    done = suffolk(*arguments(folder, folder / "reference"))
    assert done.returncode == 0, done.stderr
    assert len(read_manifest(folder / "reference").segments) >= 5
    return folder


def start(folder: Path, store: Path, *more: str, failpoint: str | None = None) -> subprocess.Popen[str]:
    environment = os.environ if failpoint is None else {**os.environ, FAILPOINT_VARIABLE: failpoint}
    return subprocess.Popen(
        command(*arguments(folder, store, *more)),
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_at(failpoint: str, folder: Path, store: Path) -> None:
    """Start a build that kills itself at ``failpoint``.

    A kill from this process could come too late, after the end of the build.
    """
    process = start(folder, store, failpoint=failpoint)
    _, errors = process.communicate(timeout=WAIT)
    assert process.returncode == -signal.SIGKILL, errors


@pytest.mark.parametrize(
    ("failpoint", "segments"), [("segment.gathered", 0), ("journal.appended@1", 1), ("journal.appended@3", 3)]
)
def test_a_killed_build_goes_on_and_ends_with_the_same_bytes(
    corpus: Path, tmp_path: Path, failpoint: str, segments: int
) -> None:
    store = tmp_path / "store"
    kill_at(failpoint, corpus, store)
    assert not (store / "MANIFEST").exists()
    done = suffolk(*arguments(corpus, store, "--json"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["resumed_segments"] == segments
    assert ("going on after" in done.stderr) == (segments > 0)
    assert segment_bytes(store) == segment_bytes(corpus / "reference")
    reference = json.loads((corpus / "reference" / "MANIFEST").read_text())["settings"]["builds"][0]
    assert report["documents"] == reference["documents"] == TEXTS
    assert not (store / "build").exists()


def test_killed_again_and_again_at_random_times(corpus: Path, tmp_path: Path) -> None:
    store, chooser = tmp_path / "store", random.Random(7)
    for _ in range(5):
        process = start(corpus, store)
        time.sleep(chooser.uniform(0.3, 1.2))
        process.kill()
        process.communicate()
        if (store / "MANIFEST").exists():
            break
    done = suffolk(*arguments(corpus, store))
    assert done.returncode == 0 or "holds a datastore already" in done.stderr
    assert segment_bytes(store) == segment_bytes(corpus / "reference")
    with open_datastore(store) as datastore:
        datastore.verify("full")


def test_workers_end_with_a_killed_builder(corpus: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    big = tmp_path / "shard-big.jsonl"
    write_jsonl(big, make_texts(6000, words=200))
    process = subprocess.Popen(
        command("build", "--tokenizer", corpus / "tokenizer", "--output", store, "--threads", "2", big),
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    workers: list[int] = []
    while process.poll() is None and len(workers) < 2:
        workers = children(process.pid)
        time.sleep(0.01)
    assert len(workers) == 2
    process.kill()
    process.wait()
    deadline = time.monotonic() + WAIT
    while any(is_worker(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_worker(worker) for worker in workers)


def children(parent: int) -> list[int]:
    try:
        text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    except OSError:
        return []
    return [int(part) for part in text.split() if is_worker(int(part))]


def is_worker(process: int) -> bool:
    try:
        return b"suffolk.build_index.worker" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def test_ctrl_c_leaves_the_old_generation_and_the_work(corpus: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    small = write_jsonl(tmp_path / "old.jsonl", make_texts(3, seed=99))
    build(BuildOptions(corpora=(str(small),), output=store, tokenizer=str(corpus / "tokenizer")))
    with default_interrupts():
        process = start(corpus, store, "--replace", failpoint="journal.appended@2:SIGINT")
    _, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "suffolk: interrupted"
    assert "Traceback" not in errors
    assert [ids for _, ids in read_documents(store)] == [tokenize(text) for text in make_texts(3, seed=99)]
    done = suffolk(*arguments(corpus, store, "--replace", "--json"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed_segments"] == 2
    assert list(segment_bytes(store).values()) == list(segment_bytes(corpus / "reference").values())
    assert sorted(os.listdir(store / "segments")) == sorted(segment_bytes(store))


def test_changed_settings_start_over_and_changed_inputs_keep_what_is_valid(corpus: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    kill_at("journal.appended@2", corpus, store)
    more = write_jsonl(tmp_path / "more.jsonl", make_texts(4, seed=50))
    done = suffolk(*arguments(corpus, store, "--json"), more)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed_segments"] == 2
    assert len(read_documents(store)) == TEXTS + 4

    other = tmp_path / "other"
    kill_at("journal.appended@2", corpus, other)
    done = suffolk(*arguments(corpus, other, "--json", "--id-field", "id"))
    assert done.returncode == 0, done.stderr
    assert "starting over" in done.stderr
    assert "id_field changed" in done.stderr
    assert json.loads(done.stdout)["resumed_segments"] == 0


def test_a_build_killed_after_publishing_is_tidied_up(corpus: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    kill_at("MANIFEST.renamed", corpus, store)
    assert (store / "build").exists()
    done = suffolk(*arguments(corpus, store))
    assert done.returncode == 0, done.stderr
    assert "an earlier run published this build already" in done.stderr
    assert not (store / "build").exists()
    assert read_manifest(store).generation == 1
    assert segment_bytes(store) == segment_bytes(corpus / "reference")
