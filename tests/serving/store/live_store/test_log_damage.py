"""Damage inside a log is found; a torn tail and a file that was never finished are cut off."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from suffolk.datastore.errors import Corruption, Unsupported
from suffolk.serving.store.live_store.log_file import HEADER_BYTES, log_path, read_header
from suffolk.serving.store.live_store.read_log import read_log
from suffolk.serving.store.live_store.record import checksum_of, decode, encode, encode_body, find, frame
from tests.support.live_logs import make_change, open_log, sequences, write


def records_of(path: Path) -> list[bytes]:
    """The records of a log file."""
    content = memoryview(path.read_bytes())
    header, found = read_header(path, content), []
    content = content[HEADER_BYTES:]
    while (record := decode(content, header.salt)) is not None:
        found.append(bytes(content[: record.bytes]))
        content = content[record.bytes :]
    return found


@pytest.mark.parametrize(
    "spoil",
    [
        lambda one, two, three, four: [one, three, four],
        lambda one, two, three, four: [two, three, four],
        lambda one, two, three, four: [one, two, two, three, four],
        lambda one, two, three, four: [one, two, three, four, four],
        lambda one, two, three, four: [one, four, three, four],
        lambda one, two, three, four: [one, three, two, four],
        lambda one, two, three, four: [one, two, three, two],
    ],
    ids=["taken out", "first taken out", "doubled", "last doubled", "replaced", "exchanged", "last replaced"],
)
def test_whole_records_in_other_places_are_damage(tmp_path: Path, spoil: Callable[..., list[bytes]]) -> None:
    folder = tmp_path / "log"
    log = open_log(folder)
    for sequence in range(1, 5):
        write(log, sequence, [sequence] * 9)
    log.close()
    path = log_path(folder, 1)
    records, header = records_of(path), path.read_bytes()[:HEADER_BYTES]
    path.write_bytes(header + b"".join(spoil(*records)))
    with pytest.raises(Corruption, match="has a record at byte .* that does not follow the one before it"):
        read_log(folder)


def test_a_record_that_another_history_wrote_there_is_damage(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(folder)
    for sequence in range(1, 4):
        write(log, sequence, [sequence] * 9)
    log.close()
    path = log_path(folder, 1)
    header = read_header(path, memoryview(path.read_bytes()))
    one, two, three = records_of(path)
    other = frame(encode_body(make_change(2, [7] * 9)), header.salt, checksum_of(one))
    path.write_bytes(path.read_bytes()[:HEADER_BYTES] + one + other + three)
    with pytest.raises(Corruption, match="that does not follow the one before it"):
        read_log(folder)


def test_a_file_that_another_one_replaces_is_damage(tmp_path: Path) -> None:
    for name, tokens in (("log", [1, 2]), ("other", [1, 3])):
        log = open_log(tmp_path / name)
        write(log, 1, tokens)
        log.rotate()
        write(log, 2, [4])
        log.close()
    log_path(tmp_path / "log", 1).write_bytes(log_path(tmp_path / "other", 1).read_bytes())
    with pytest.raises(Corruption, match=r"000000000001\.log is not the file that the next one follows"):
        read_log(tmp_path / "log")


def test_a_torn_tail_is_cut_off_and_reported(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(folder)
    write(log, 1, [1, 2, 3])
    whole = log_path(folder, 1).stat().st_size
    write(log, 2, [4, 5, 6])
    log.close()
    end = log_path(folder, 1).stat().st_size
    for cut in range(whole + 1, end):
        os.truncate(log_path(folder, 1), cut)
        recovered = read_log(folder)
        assert [change.tokens.tolist() for change in recovered.changes] == [[1, 2, 3]]
        assert recovered.torn is not None
        assert (recovered.torn.offset, recovered.torn.bytes) == (whole, cut - whole)
        log_path(folder, 1).write_bytes(
            log_path(folder, 1).read_bytes() + bytes(end - cut)
        )  # zeros, as a power loss leaves
    again = open_log(folder)
    write(again, 2, [9])
    again.close()
    recovered = read_log(folder)
    assert recovered.torn is None
    assert [change.tokens.tolist() for change in recovered.changes] == [[1, 2, 3], [9]]


def test_a_crash_while_a_file_is_made_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(folder)
    write(log, 1, [1])
    log.close()
    log_path(folder, 2).write_bytes(log_path(folder, 1).read_bytes()[:10])
    assert sequences(folder) == [1]
    log = open_log(folder)
    assert not log_path(folder, 2).exists()
    write(log, 2, [2])
    log.close()
    assert sequences(folder) == [1, 2]


def test_damage_inside_the_log_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(folder, file_bytes=100)
    for sequence in range(1, 5):
        write(log, sequence, [sequence] * 40)
    log.close()
    first = log_path(folder, 1)
    content = first.read_bytes()
    first.write_bytes(content[:-3])
    with pytest.raises(Corruption, match=r"000000000001\.log holds no whole record"):
        read_log(folder)
    first.write_bytes(b"x" + content[1:])
    with pytest.raises(Corruption, match="no file of a write-ahead log"):
        read_log(folder)
    first.write_bytes(content[:9] + b"x" + content[10:])
    with pytest.raises((Corruption, Unsupported)):
        read_log(folder)
    first.write_bytes(content)
    log_path(folder, 2).unlink()
    with pytest.raises(Corruption, match=r"000000000002\.log is missing"):
        read_log(folder)


def test_damage_before_a_whole_record_is_no_torn_tail(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = open_log(folder)
    for sequence in range(1, 5):
        write(log, sequence, [sequence] * 40)
    log.close()
    path = log_path(folder, 1)
    good = path.read_bytes()
    second = HEADER_BYTES + len(encode(make_change(1, [1] * 40)))
    for place in (second, second + 100):  # the length of the second record, and its tokens
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(Corruption, match=f"damaged at byte {second}: a whole change follows.*truncate -s {second}"):
            read_log(folder)
    os.truncate(path, second)
    assert sequences(folder) == [1]


def test_a_record_is_found_behind_megabytes(tmp_path: Path) -> None:
    record = encode(make_change(1, [1, 2, 3]))
    for before in (1, (1 << 20) - 5, (1 << 20) + 7):
        assert find(memoryview(b"\x02" + bytes(before - 1) + record), 0) == before
    assert find(memoryview(bytes(1 << 20) + record[:-1]), 0) is None
