"""Tests the files that commands write when they end."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from suffolk.cli.output_file import plot_beside, require_folder
from suffolk.datastore.errors import InvalidArgument, PermissionDenied
from suffolk.datastore.files import write_json


def test_what_was_there_stays_until_all_is_written(tmp_path: Path) -> None:
    """Regression: a document that could not be written used to leave a truncated file."""
    file = tmp_path / "out.json"
    write_json(file, {"a": 1})
    with pytest.raises(TypeError):
        write_json(file, {"b": object()})
    assert json.loads(file.read_text()) == {"a": 1}
    assert [*tmp_path.iterdir()] == [file]


def test_two_writers_of_a_file_leave_the_content_of_one(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    documents = [[number] * 20_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            [*pool.map(lambda document: write_json(file, document), documents)]
            assert json.loads(file.read_text()) in documents
    assert [*tmp_path.iterdir()] == [file]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_json(tmp_path / "link", 1)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "1\n"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    require_folder("--json", Path(os.devnull))
    write_json(Path(os.devnull), 1)
    assert Path(os.devnull).is_char_device()


def test_a_plot_stands_beside_its_results_and_not_in_their_place(tmp_path: Path) -> None:
    """Regression: an exception for the plot used to discard the measured results."""
    assert plot_beside(tmp_path / "a.json", None) == tmp_path / "a.png"
    assert plot_beside(Path(os.devnull), tmp_path / "b.png") == tmp_path / "b.png"
    with pytest.raises(InvalidArgument, match="--json and the plot are one file"):
        plot_beside(tmp_path / "a.png", None)
    with pytest.raises(InvalidArgument, match="is no file; name one for the plot with --plot"):
        plot_beside(Path(os.devnull), None)


def test_a_folder_that_takes_no_file_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Regression: a folder without write permission used to be noticed at the end. Minutes of measurements were then lost."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root can write everywhere
    with pytest.raises(PermissionDenied, match="--json .*out: cannot be written; name a file in a folder of yours"):
        require_folder("--json", tmp_path / "out")
