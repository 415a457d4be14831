"""Records of the processes that follow a datastore."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from suffolk.datastore.readers import Reader, ReaderFile, read_readers, reader_lines, wait_for_readers

DIE = """
import os, sys
from pathlib import Path
from suffolk.datastore.readers import ReaderFile
ReaderFile(Path(sys.argv[1])).write(7, 7)
os._exit(0)
"""


def test_what_processes_serve(tmp_path: Path) -> None:
    assert read_readers(tmp_path) == wait_for_readers(tmp_path, 5) == []
    first, second = ReaderFile(tmp_path), ReaderFile(tmp_path)
    first.write(4, 5, "it has another tokenizer")
    second.write(5, 5)
    readers = wait_for_readers(tmp_path, 5)
    assert sorted(each.generation for each in readers) == [4, 5]
    mine = f"process {os.getpid()} on {platform.node()}"
    assert sorted(reader_lines(readers, 5)) == [
        f"{mine} serves generation 5",
        f"{mine} still serves generation 4: it has another tokenizer",
    ]
    second.close()
    first.write(10, 10)
    assert [each.generation for each in read_readers(tmp_path)] == [10]
    first.close()
    first.close()
    assert read_readers(tmp_path) == []


def test_a_process_that_does_not_follow(tmp_path: Path) -> None:
    reader = ReaderFile(tmp_path)
    reader.write(4, 4, "an old problem")
    [found] = wait_for_readers(tmp_path, 5, seconds=0.1)
    assert not found.has_settled(5)
    assert reader_lines([Reader(1, "host", 4, 4)], 5) == [
        "process 1 on host still serves generation 4: it has not answered yet"
    ]
    reader.close()


def test_files_of_ended_processes_are_removed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", DIE, str(tmp_path)], check=True)
    assert len(list((tmp_path / "readers").iterdir())) == 1
    assert read_readers(tmp_path) == []
    assert list((tmp_path / "readers").iterdir()) == []


def test_a_folder_without_permission(tmp_path: Path) -> None:
    (tmp_path / "readers").write_text("")  # root may write in read-only folders
    reader = ReaderFile(tmp_path)
    reader.write(1, 1)
    reader.close()
    assert read_readers(tmp_path) == []
