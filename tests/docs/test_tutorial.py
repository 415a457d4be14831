"""The tutorial's commands run, in order, on a tiny model, and end with a verdict."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suffolk.cli.main import main
from tests.support.tiny_models import save_tiny

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "tutorial"


@pytest.fixture(scope="module")
def tutorial() -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / "execute.py"))


def commands(tutorial: dict[str, Any], run: Callable[[list[str]], str]) -> str:
    page: str = tutorial["executed"](tutorial["PAGE"].read_text(), run)
    return page


def test_the_page_runs_to_its_verdict(
    tutorial: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    texts = tmp_path / "source"
    for name in ("a.py", "test/left_out.py"):
        (texts / name).parent.mkdir(exist_ok=True, parents=True)
        (texts / name).write_text("def add(a, b):\n    return a + b\n" * 5)
    work = tmp_path / "work"
    work.mkdir()
    tutorial["prepare"](work, save_tiny(tmp_path / "tiny"), texts)
    assert [path.name for path in (work / "texts").rglob("*.py")] == ["a.py"]
    monkeypatch.chdir(work)
    (work / "prompts.jsonl").write_text('{"prompt": "abcabcabc"}\n{"prompt": "def add("}\n')

    def run(words: list[str]) -> str:
        shorter = ["8" if word == "128" else word.replace("128,512", "8") for word in words[1:]]
        assert main(shorter) == 0
        return capsys.readouterr().out

    page = commands(tutorial, run)
    assert "\nverdict: " in page
    assert (work / tutorial["PLOT"]).read_bytes().startswith(b"\x89PNG")


def test_the_page_holds_the_output_of_all_its_commands(tutorial: dict[str, Any]) -> None:
    page = tutorial["PAGE"].read_text()
    assert page.count("$ suffolk ") == len(list(tutorial["BLOCK"].finditer(page))) == 4
    assert all(block["output"] for block in tutorial["BLOCK"].finditer(page))
    assert page.count("\nverdict: ") == 1
    assert (FOLDER / tutorial["PLOT"]).exists()
    assert commands(tutorial, lambda words: "new\n").count("\nnew\n```") == 4
