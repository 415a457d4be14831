"""Tests files, folders and patterns as inputs: which files are read, and which are skipped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from suffolk.build_index.inputs import find_inputs
from suffolk.datastore.errors import InvalidArgument, NotFound
from tests.support.build_blocks import options


def test_folders_are_walked_in_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.py", "a/z.py", "a/.git/config", ".env", "c.md", "a/data.npy"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    inputs = find_inputs(options(tmp_path, tmp_path / "b.py", extensions=("py", ".npy")))
    assert [Path(file.path).name for file in inputs.files] == ["b.py", "z.py"]
    assert inputs.skipped["hidden"] == 2
    assert inputs.skipped["other extension"] == 1
    assert inputs.skipped["given twice"] == 1
    assert sum(count for reason, count in inputs.skipped.items() if "token array" in reason) == 1


def test_linked_folders_are_counted_and_read_where_they_are_named(tmp_path: Path) -> None:
    """Regression: linked folders used to be left out silently."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "corpus/a.txt").write_text("a")
    (tmp_path / "elsewhere/b.txt").write_text("b")
    (tmp_path / "corpus/linked").symlink_to(tmp_path / "elsewhere")
    inputs = find_inputs(options(tmp_path / "corpus"))
    assert [Path(file.path).name for file in inputs.files] == ["a.txt"]
    assert inputs.skipped["linked folder (name it)"] == 1
    named = find_inputs(options(tmp_path / "corpus", tmp_path / "corpus/linked"))
    assert [Path(file.path).name for file in named.files] == ["a.txt", "b.txt"]


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a folder that cannot be read used to be left out silently."""
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "locked").mkdir()
    scan = os.scandir

    def refuse(path: str) -> Any:  # root may read everything
        if str(path).rstrip("/").endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for corpus in (tmp_path, tmp_path / "**"):
        with pytest.raises(
            InvalidArgument, match=r"locked/?: cannot be read \(Permission denied\); check the file and its perm"
        ):
            find_inputs(options(corpus))


def test_a_pattern_enters_no_linked_folder_below_two_stars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: with two links in circles the build never began."""
    for name in ("a.txt", "in/b.txt", "in/deep/c.txt", ".hidden/d.txt", "in/e.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    (tmp_path / "in/up").symlink_to("..")
    (tmp_path / "in/self").symlink_to(".")
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    monkeypatch.chdir(tmp_path)
    wanted = {
        "**/*.txt": ["a.txt", "in/b.txt", "in/deep/c.txt"],
        "in/**": ["in/b.txt", "in/deep/c.txt", "in/e.py"],
        "**/deep/**/*.txt": ["in/deep/c.txt"],
        "**": ["a.txt", "in/b.txt", "in/deep/c.txt", "in/e.py"],
    }
    for pattern, names in wanted.items():
        for start in ("", f"{tmp_path}/"):
            inputs = find_inputs(options(start + pattern))
            assert [file.path for file in inputs.files] == [start + name for name in names]
            assert inputs.skipped["linked folder (name it)"] == 2


def test_patterns_and_missing_inputs(tmp_path: Path) -> None:
    for name in ("1.txt", "2.txt"):
        (tmp_path / name).write_text(name)
    assert len(find_inputs(options(f"{tmp_path}/*.txt")).files) == 2
    with pytest.raises(NotFound, match=r"\*\.md: the pattern matches no file; check it"):
        find_inputs(options(f"{tmp_path}/*.md"))
    with pytest.raises(NotFound, match="gone.txt: no such file or folder; check the name"):
        find_inputs(options(tmp_path / "gone.txt"))
    with pytest.raises(InvalidArgument, match="http://host/a.txt: no URL that can be read; download it, or give s3://"):
        find_inputs(options("http://host/a.txt"))
    with pytest.raises(InvalidArgument, match=r"nothing to read \(2 other extension\)"):
        find_inputs(options(tmp_path, extensions=("md",)))


def test_a_folder_without_files_is_named(tmp_path: Path) -> None:
    """Regression: it was left out without a word beside other corpora."""
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "empty/.hidden").mkdir(parents=True)
    inputs = find_inputs(options(tmp_path / "empty", tmp_path / "a.txt"))
    assert inputs.examples == {"folder without files": [str(tmp_path / "empty")]}
    for corpora, strict in (("empty",), False), (("empty", "a.txt"), True):
        with pytest.raises(InvalidArgument, match=f"1 folder without files: {tmp_path}/empty"):
            find_inputs(options(*(tmp_path / each for each in corpora), strict=strict))


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        (
            "a.txt",
            {"end_of_document": 2},
            r"^end of document: 2 has no effect: no corpus is a \.npy or \.bin or \.parq",
        ),
        ("a.jsonl", {"end_of_document": 2}, "leave --end-of-document out, or name tokenized corpora$"),
        (
            "a.npy",
            {"token_format": "u16"},
            r"^token format: u16 has no effect: no corpus is a \.bin file; leave --token-f",
        ),
    ],
)
def test_options_of_tokenized_corpora_are_refused_for_others(
    tmp_path: Path, name: str, option: dict[str, Any], message: str
) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(InvalidArgument, match=message):
        find_inputs(options(tmp_path, **option))
    (tmp_path / "b.bin").write_bytes(b"1234")
    assert len(find_inputs(options(tmp_path, **option)).files) == 2
