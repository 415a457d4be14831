"""``suffolk verify`` reads the log of a live store: what is written there, what is damaged, and what is being written."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from suffolk.cli.main import main
from suffolk.datastore.errors import Corruption
from suffolk.serving.store.live_store import read_log as reading
from suffolk.serving.store.live_store.check_log import check_log, unpublished
from suffolk.serving.store.live_store.identity import log_folder
from suffolk.serving.store.live_store.log_file import log_path, read_header
from suffolk.serving.store.live_store.record import Change, Record, decode, encode_body, frame
from tests.serving.store.live_store.conftest import OpenStore


@pytest.fixture
def path(open_store: OpenStore) -> Path:
    """A closed store with a published document, and four documents in the log, of which two are published or removed."""
    store = open_store()
    store.append([1, 2, 3], id="a")
    store.flush()
    store.append([4, 5], id="b", group="g")
    store.append([6], id="c", metadata={"license": "mit"})
    store.append([7, 8, 9], id="d", group="g", replace=True)
    store.close()
    return store.path


def last_log(store: Path) -> Path:
    return sorted(log_folder(store).iterdir())[-1]


def test_verify_counts_what_is_in_the_log(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(path)]) == 0
    files, log = capsys.readouterr().out.splitlines()
    assert files.startswith(f"{path}: sound (checksums; generation 1, 1 segment,")
    size = sum(each.stat().st_size for each in log_folder(path).iterdir())
    assert log.startswith(f"{path}/live/log: sound (4 records, 4 documents, 9 tokens, {size:,} bytes, ")
    assert unpublished(path) == (2, 4)
    assert main(["verify", "--depth", "headers", str(path)]) == 0
    assert "live/log" not in capsys.readouterr().out


def test_verify_checks_a_store_that_published_nothing(
    open_store: OpenStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store()
    store.append([1, 2])
    assert main(["verify", str(store.path)]) == 0
    assert capsys.readouterr().out.startswith(f"{store.path}/live/log: sound (1 record, 1 document, 2 tokens, ")


def test_a_torn_tail_is_reported_and_no_damage(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last_log(path).write_bytes(last_log(path).read_bytes()[:-5])
    assert main(["verify", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "sound (3 records, 3 documents, 6 tokens," in shown
    assert "bytes at the end are no whole record" in shown


@pytest.mark.parametrize(
    ("place", "message"),
    [(34, "is damaged at byte 32: a whole change follows at byte"), (20, "has a damaged header")],
)
def test_verify_finds_a_changed_byte(path: Path, capsys: pytest.CaptureFixture[str], place: int, message: str) -> None:
    file = last_log(path)
    good = file.read_bytes()
    file.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
    assert main(["verify", str(path)]) == 1
    assert f"suffolk: damaged: {file} {message}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda change: replace(change, sequences=np.array([4], np.uint64)), "document 4 follows document 4"),
        (
            lambda change: replace(change, tokens=np.array([50], np.uint16)),
            "token id 50 is out of range; the vocabulary has 50",
        ),
        (
            lambda change: replace(change, tokens=change.tokens[:0], lengths=np.zeros(1, np.uint32)),
            "a document has no tokens",
        ),
        (lambda change: replace(change, origins=[b"{"]), "the origin of document 5 is damaged"),
        (lambda change: replace(change, groups=np.array([7], np.uint64)), "document 5 is in another group than None"),
    ],
)
def test_verify_finds_records_that_no_store_writes(path: Path, bad: Callable[[Change], Change], message: str) -> None:
    good = Change(
        np.array([1], np.uint16),
        np.ones(1, np.uint32),
        np.array([5], np.uint64),
        np.zeros(1, np.uint64),
        np.zeros(1, np.int64),
        [b""],
    )
    file = last_log(path)
    content = file.read_bytes()
    salt, last = read_header(file, memoryview(content)).salt, reading.read_log(log_folder(path)).files[-1].last
    file.write_bytes(content + frame(encode_body(good), salt, last))
    assert check_log(path).records == 5
    file.write_bytes(content + frame(encode_body(bad(good)), salt, last))
    with pytest.raises(Corruption, match=f"{file} record 3: {message}"):
        check_log(path)


def test_a_log_that_cannot_be_read_hides_no_published_document(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = last_log(path)
    file.write_bytes(b"x" + file.read_bytes()[1:])
    assert main(["info", str(path)]) == 0
    shown = capsys.readouterr().out
    assert f"not published      the log cannot be read, so its documents are not counted: {file} is no file of" in shown
    assert "documents          1\n" in shown


def test_a_log_of_another_store_is_found(path: Path, tmp_path: Path) -> None:
    identity = path / "live" / "identity.json"
    identity.write_text(json.dumps(json.loads(identity.read_bytes()) | {"group_secret": "00" * 16}))
    with pytest.raises(Corruption, match="document 2 is in another group than 'g'"):
        check_log(path)
    shutil.rmtree(path / "live" / "log")
    identity.unlink()
    log_folder(path).mkdir()
    log_path(log_folder(path), 1).write_bytes(b"")
    with pytest.raises(Corruption, match="identity.json is missing beside a log"):
        check_log(path)


def test_a_record_that_is_finished_during_the_check_is_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the tail was read a second time, and the record that was whole by then looked like damage before it."""
    file = last_log(path)
    content = file.read_bytes()
    file.write_bytes(content[:-5])

    def finish(data: memoryview, salt: int) -> Record | None:
        found = decode(data, salt)
        if found is None:
            file.write_bytes(content)
        return found

    monkeypatch.setattr(reading, "decode", finish)
    assert reading.read_log(log_folder(path)).torn is not None
    assert reading.read_log(log_folder(path)).torn is None


def test_a_log_is_sound_at_every_moment_of_its_writing(open_store: OpenStore) -> None:
    store = open_store()
    store.maintenance_thread.close()
    store.writer.log.file_bytes = 400

    def change() -> None:
        for number in range(1, 600):
            store.append([number % 40] * (1 + number % 30), group=f"{number % 3}", replace=number % 2 == 0)
            if number % 20 == 0:
                store.scrub()
            if number % 90 == 0:
                store.append([1])
                store.flush()

    thread = threading.Thread(target=change)
    thread.start()
    reports = [check_log(store.path)]
    while thread.is_alive():
        reports.append(check_log(store.path))
    assert len({report.bytes for report in reports}) > 5
    assert check_log(store.path).torn is None
