"""The build comparison removes its own files from the work folder, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.benchmarks.building import measure as building
from suffolk.benchmarks.building.measure import measure_building
from suffolk.benchmarks.datastore_options import BuildingOptions
from suffolk.cli.bench.of_datastores import BenchBuild
from suffolk.cli.options.parser import make_parser
from suffolk.cli.options.reading import read_options
from suffolk.cli.options.setting import settings_of
from suffolk.datastore.errors import InvalidArgument, ResourceExhausted
from tests.support.building import write_jsonl


@pytest.fixture(autouse=True)
def _nothing_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "require_package", lambda: None)
    monkeypatch.setattr(building, "load_tokenizer", lambda name: None)


def options(tmp_path: Path) -> BuildingOptions:
    corpora = (str(write_jsonl(tmp_path / "c.jsonl", ["a b"])),)
    return BuildingOptions(
        corpora=corpora, tokenizer="no tokenizer", workdir=tmp_path / "work", sort_tokens=(), sort_repeats=0
    )


def test_an_error_removes_what_was_built_and_nothing_else(tmp_path: Path) -> None:
    kept = tmp_path / "work" / "build" / "mine.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    with pytest.raises(InvalidArgument):  # this tokenizer does not exist
        measure_building(options(tmp_path))
    assert kept.read_text() == "mine"
    assert list((tmp_path / "work").iterdir()) == [kept.parent]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("a file")
    with pytest.raises(ResourceExhausted, match="work cannot be written"):
        measure_building(options(tmp_path))


def test_0_skips_the_sorts() -> None:
    """Regression: the command line refused the 0 that its help names."""
    settings = settings_of(BenchBuild)
    words = ["c.txt", "--tokenizer", "T", "--sort-tokens", "0", "--sort-repeats", "0"]
    options = read_options(
        BenchBuild, make_parser("suffolk bench build", "", "", settings), settings, "bench build", words
    )
    assert (options.sort_tokens, options.sort_repeats) == ((0,), 0)
    with pytest.raises(InvalidArgument, match=r"sort_tokens is 1; it must be"):
        BuildingOptions(corpora=(), tokenizer="T", sort_tokens=(1,))
    with pytest.raises(InvalidArgument, match="sort_repeats is 1; it must be"):
        BuildingOptions(corpora=(), tokenizer="T", sort_repeats=1)
