"""The log gives back what was written, and goes on after a full disk."""

from __future__ import annotations

import os
import threading
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from suffolk.datastore.errors import ResourceExhausted, Unavailable, Unsupported
from suffolk.serving.store.live_store.log import ALWAYS, Log
from suffolk.serving.store.live_store.log_file import HEADER_BYTES, MAGIC, log_path
from suffolk.serving.store.live_store.read_log import read_log
from suffolk.serving.store.live_store.record import Change, KeyedAppend, decode, encode, encode_body
from tests.support.full_disk import file_size_limit
from tests.support.live_logs import make_change, open_log, sequences, write


def test_a_record_holds_its_change() -> None:
    change = make_change(5, [1, 2, 3], [], [65535], removed=(2, 4), drop_before=3)
    found = decode(memoryview(encode(change) + b"more"))
    assert found is not None
    assert found.bytes == len(encode(change))
    assert found.change.drop_before == 3
    assert list(found.change.origins) == list(change.origins)
    for name in ("tokens", "lengths", "sequences", "groups", "times", "removed"):
        assert getattr(found[0], name).tolist() == getattr(change, name).tolist()


def test_a_record_holds_keys_of_appends() -> None:
    keys = [KeyedAppend(bytes([each] * 16), 1 << 40, 2, 7, 1, 1_700_000_000) for each in (1, 2)]
    for change in (replace(make_change(5, [1, 2, 3]), keys=keys), Change(keys=keys)):
        found = decode(memoryview(encode(change)))
        assert found is not None
        assert found.change.keys == keys
        assert found.change.tokens.tolist() == change.tokens.tolist()


def test_a_document_that_spells_a_record_is_not_one(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(folder)
    spelled = np.frombuffer(encode(make_change(9, [9] * 9)), np.uint16)
    write(log, 1, spelled.tolist())
    log.close()
    path = log_path(folder, 1)
    os.truncate(path, path.stat().st_size - 20)
    recovered = read_log(folder)  # no Corruption
    assert recovered.torn is not None
    assert not recovered.changes


@pytest.mark.parametrize("version", [2, 4])
def test_a_log_of_another_version_is_refused_and_stays(tmp_path: Path, version: int) -> None:
    log = open_log(tmp_path / "log")
    write(log, 1, [1, 2, 3])
    log.close()
    path = log_path(tmp_path / "log", 1)
    content = bytearray(path.read_bytes())
    content[len(MAGIC)] = version
    content[HEADER_BYTES - 4 : HEADER_BYTES] = zlib.crc32(content[: HEADER_BYTES - 4]).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(
        Unsupported, match=f"log version {version}; this program reads 3: use the Suffolk that wrote it"
    ):
        open_log(tmp_path / "log")
    assert path.read_bytes() == content


def test_a_log_with_another_header_is_refused_by_its_version(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    log_path(tmp_path / "log", 1).write_bytes(MAGIC + (4).to_bytes(4, "little") + bytes(80))
    with pytest.raises(Unsupported, match="log version 4; this program reads 3"):
        open_log(tmp_path / "log")


def test_only_the_owner_reads_a_log(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    write(log, 1, [1])
    log.checkpoint(log.rotate(), [encode_body(make_change(1, [1]))], 1)
    log.close()
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "log").iterdir()} == {0o600}


def test_a_changed_or_shortened_record_is_none() -> None:
    record = bytearray(encode(make_change(1, [1, 2, 3])))
    for place in range(len(record)):
        assert decode(memoryview(bytes(record[:place]))) is None
        record[place] ^= 0x40
        assert decode(memoryview(bytes(record))) is None
        record[place] ^= 0x40


def test_what_was_written_is_read(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", file_bytes=300)
    for sequence in range(1, 20):
        write(log, sequence, [sequence, 7])
    assert log.file_count > 3
    assert sequences(tmp_path / "log") == list(range(1, 20))
    log.close()
    again = open_log(tmp_path / "log")
    write(again, 20, [20])
    again.close()
    recovered = read_log(tmp_path / "log")
    assert recovered.torn is None
    assert [change.tokens.tolist()[0] for change in recovered.changes] == list(range(1, 21))
    assert [file.number for file in recovered.files] == list(range(1, len(recovered.files) + 1))


def test_a_file_without_records_is_not_followed_by_another(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    write(log, 1, [1])
    assert [log.rotate(), log.rotate(), log.file_count] == [1, 1, 2]
    log.checkpoint(log.rotate(), [encode_body(make_change(1, [1]))], 1)
    write(log, 2, [2])
    assert log.rotate() == 2
    log.close()
    assert sequences(tmp_path / "log") == [1, 2]


def test_a_full_disk_refuses_a_record_and_the_next_one_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(folder, ALWAYS)
    write(log, 1, [1])
    size = log_path(folder, 1).stat().st_size
    with file_size_limit(size + 10), pytest.raises(ResourceExhausted, match="reads go on; free disk space"):
        write(log, 2, [2, 2, 2])
    assert log_path(folder, 1).stat().st_size == size
    log.acknowledge(write(log, 2, [3]))
    with file_size_limit(5), pytest.raises(ResourceExhausted):
        log.rotate()
    assert not log_path(folder, 2).exists()
    log.acknowledge(write(log, 3, [4]))
    log.close()
    assert [change.tokens.tolist() for change in read_log(folder).changes] == [[1], [3], [4]]


def test_a_failed_sync_ends_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path / "log", ALWAYS)
    position = write(log, 1, [1])

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(Unavailable, match="cannot be synced"):
            log.acknowledge(position)
    with pytest.raises(Unavailable, match="open the store again"):
        write(log, 2, [2])
    with pytest.raises(Unavailable):
        log.close()


def test_concurrent_callers_share_flushes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, lock, flushes = open_log(tmp_path / "log", ALWAYS), threading.Lock(), []
    write(log, 1, [1])
    entered, release = threading.Event(), threading.Event()

    def fdatasync(descriptor: int) -> None:
        flushes.append(descriptor)
        entered.set()
        assert release.wait(30)

    monkeypatch.setattr(os, "fdatasync", fdatasync)

    def append(sequence: int) -> None:
        with lock:
            position = write(log, sequence, [sequence])
        assert log.acknowledge(position)

    first = threading.Thread(target=append, args=(2,))
    first.start()
    assert entered.wait(30)
    others = [threading.Thread(target=append, args=(sequence,)) for sequence in range(3, 11)]
    for thread in others:
        thread.start()
    while log._written < 9 * len(encode(make_change(1, [1]))):  # all nine are written, and one flush is running
        threading.Event().wait(0.01)
    release.set()
    for thread in (first, *others):
        thread.join()
    assert len(flushes) <= 3
    monkeypatch.undo()
    log.close()


def test_a_withdrawn_record_leaves_no_trace(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    write(log, 1, [1])
    body = encode_body(make_change(2, [2]))
    log.write(body, 2)
    log.withdraw(body)
    write(log, 2, [3])
    log.close()
    assert [change.tokens.tolist() for change in read_log(tmp_path / "log").changes] == [[1], [3]]


def test_a_checkpoint_replaces_files(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(folder, file_bytes=200)
    for sequence in range(1, 9):
        write(log, sequence, [sequence] * 30)
    through = log.rotate()
    write(log, 9, [9])
    log.checkpoint(through, [encode_body(make_change(4, [4]))], 4)
    assert sequences(folder) == [4, 9]
    assert len(list(folder.iterdir())) == log.file_count == 2
    log.checkpoint(log.rotate(), [encode_body(make_change(9, [9]))], 9)
    log.close()
    assert sequences(folder) == [9]


def test_trimming_removes_whole_files_of_old_documents(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(folder, file_bytes=HEADER_BYTES + 1)  # a file for each record
    for sequence in range(1, 7):
        write(log, sequence, [sequence])
    log.trim(4)
    assert sequences(folder) == [4, 5, 6]
    log.trim(100)
    assert sequences(folder) == [5, 6]
    log.close()
    assert sequences(folder) == [5, 6]


def test_a_thread_flushes_every_interval(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    log = Log(tmp_path / "log", read_log(tmp_path / "log"), "interval", interval=0.01)
    position = write(log, 1, [1])
    while log.unsynced_bytes:
        threading.Event().wait(0.01)
    assert log.acknowledge(position)
    log.close()
