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


def test_a_checkout_is_measured_beside_an_older_one_that_cannot_run(words: list[str], tmp_path: Path) -> None:
    """The older checkout has no Suffolk, only what looks like its core. What it cannot run is stated."""
    old = tmp_path / "old"
    (old / "datastore").mkdir(parents=True)
    (old / "datastore/_native.so").touch()
    (old / "suffolk.py").write_text("raise SystemExit('error: too old')")
    (old / "torch.py").touch()  # the real one takes two seconds to import
    assert gpu.main([*words, "--parts", "passes", "--older", str(old)]) == 0
    lines = (tmp_path / "out/tables.md").read_text().splitlines()
    assert [each for each in lines if "| requests, rows of each, context | packed, ms | packed, ms, older |" in each]
    [line] = [each for each in lines if each.startswith("| packed |") and " of 48" in each]
    assert line.count("1 of 1") == 1
    assert [each for each in lines if each.startswith("- ")] == [
        "- old, passes: error: too old",
        "- old, start: error: too old",
    ]
    assert {path.name for path in (tmp_path / "out/new").iterdir()} == {"passes.json", "start.json"}
    assert not list((tmp_path / "out/older").iterdir())


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


def test_the_page_has_the_columns_of_both_checkouts() -> None:
    bits = {"equal_bits": {"trees": (4, 4)}, "equal_texts": (1, 1), "equal_samples": (2, 2)}
    times = {"points": [[1, 4, 64, 3.5, 0.25]], "mixed": [], "kernels": None}
    times |= {"start_seconds": 1.5, "first_use_milliseconds": 9.0}
    both = []
    for commit, warm in (("abc", 0.5), ("def", 0.75)):
        kind = {"asked": "packed", "kind": "packed"}
        documents = {"passes": {"layers": 1, "passes": [kind | bits | times]}}
        documents |= {"start": {"layers": 1, "passes": [kind | {"warm_start_seconds": warm}]}}
        both.append(Results(commit, documents, {}))
    text = page(both, "a card")
    assert text.startswith("# Passes and decoding\n\na card, commit abc; older: commit def.\n")
    assert "| packed, ms | packed, ms, older | packed, host ms | packed, host ms, older |" in text
    assert "| 1 x 4 rows, 64 tokens | 3.5 | 3.5 | 0.25 | 0.25 |" in text
    assert "| packed | 4 of 4 | 4 of 4 | 1 of 1 | 1 of 1 | 2 of 2 | 2 of 2 |" in text
    assert "| 0.5 | 0.75 |" in text
    assert "Not measured" not in text
