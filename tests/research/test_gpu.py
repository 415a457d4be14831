"""The GPU study on a CPU: a checkout beside an older one, its page of tables, and what a checkout cannot run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from research import gpu
from research.gpu_tables import TABLES, Results, beside, page
from tests.support.tiny_models import save_tiny

ROOT = Path(__file__).parents[2]


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text(json.dumps({"prompt": "abcabcabcabc"}) + "\n")
    words = ["--model", str(save_tiny(tmp_path / "tiny")), "--prompts", str(prompts), "--output", str(tmp_path / "out")]
    return [*words, "--device", "cpu", "--dtype", "float32", "--quick", "--limit", "1", "--kinds", "packed"]


def test_a_checkout_is_measured_beside_another(words: list[str], tmp_path: Path) -> None:
    assert gpu.main([*words, "--parts", "passes", "--older", str(ROOT)]) == 0
    text = (tmp_path / "out/tables.md").read_text()
    assert "| requests, rows of each, context | packed, ms | packed, ms, older |" in text
    [line] = [each for each in text.splitlines() if each.startswith("| packed |") and " of 48" in each]
    assert line.count("1 of 1") == 2
    assert "Not measured" not in text
    assert {path.name for path in (tmp_path / "out/older").iterdir()} == {"passes.json", "start.json"}


def test_what_a_checkout_cannot_run_is_stated(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older checkout has no Suffolk, only what looks like its core. This one is measured with scripts that do nothing."""
    usual = gpu._adapted

    def nothing_here(script: str | None, checkout: Path) -> str | None:
        return "print('{}')" if checkout == ROOT else usual(script, checkout)

    monkeypatch.setattr(gpu, "_adapted", nothing_here)
    (tmp_path / "old/datastore").mkdir(parents=True)
    (tmp_path / "old/datastore/_native.so").touch()
    (tmp_path / "old/suffolk.py").write_text("raise SystemExit('error: too old')")
    assert gpu.main([*words, "--parts", "passes", "--older", str(tmp_path / "old")]) == 0
    lines = (tmp_path / "out/tables.md").read_text().splitlines()
    assert [each for each in lines if each.startswith("- ")] == [
        "- old, passes: error: too old",
        "- old, start: error: too old",
    ]


def test_a_commit_that_does_not_exist_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main([*words, "--older", "no-such-commit"]) == 2
    assert capsys.readouterr().err.startswith("error: --older: git -C")


def test_all_measurements_are_commands(words: list[str], tmp_path: Path) -> None:
    args = gpu._parser().parse_args([*words, "--datastore", "grpc://there:1/x", "--assistant", "hub/name"])
    found = {each.name: each.arguments for each in gpu._measurements(args, tmp_path)}
    assert list(found) == ["passes", "start", "decode", "decode-0.7", "decode-fp32", "batch", "costs"]
    assert found["decode"][2:4] == ("bench", "decode")
    assert {"grpc://there:1/x", "hub/name", "--transformers"} <= set(found["decode"])


def test_figures_stand_beside_those_of_the_older_commit() -> None:
    table = beside("drafter", [{"a": {"M": 1.5}}, {"a": {"M": 1.25}, "b": {"nodes": 3}}])
    assert table.headers == ["drafter", "M", "M, older", "nodes", "nodes, older"]
    assert table.cells() == [["a", "1.5", "1.25", "-", "-"], ["b", "-", "-", "-", "3"]]


def test_the_page_has_each_report_and_each_problem() -> None:
    way = {"tokens_per_second_total": 9.0, "mean_generated_length": 2.0, "identical": 1, "runs": 1}
    way |= {"milliseconds_a_step": {"draft": 1.0, "forward": 7.0, "verify": 0.5}}
    batch = {"8": {"none": {"tokens_per_second": 50.0, "identical": 2, "requests": 2}}}
    decode = {"results": {"summary": {"p": {"hybrid": way}}}}
    failed = {"layers": 1, "passes": [{"asked": "graph", "problem": "no graphs"}]}
    documents = {"passes": failed, "decode": decode, "batch": {"results": {"batches": batch}}}
    text = page([Results("abc", documents, {"costs": "error: full disk"})], "a card")
    assert text.startswith("# Passes and decoding\n\na card, commit abc.\n")
    assert "| p: hybrid | 9 | - | 2 | - | 1 of 1 |" in text
    assert "| hybrid | 1 | 7 | 0.5 | 1.5 |" in text
    assert "| 8: none | 50 | - | - | 2 of 2 |" in text
    assert text.endswith("## Not measured\n\n- abc, costs: error: full disk\n- abc, graph passes: no graphs\n")
    assert len({title for title, _, _ in TABLES}) == len(TABLES)
