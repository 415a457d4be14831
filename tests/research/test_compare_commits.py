"""Tests the comparison of two checkouts in two processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from research import compare_commits
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, save_costs
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import save_tiny

ROOT = Path(__file__).parents[2]
PROMPTS = ("abcabcabcabc", "one two one two", "x = y\n" * 5)
NEW = 40


def test_a_checkout_is_as_fast_as_itself_up_to_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Both processes run the code of this repository. Ctrl-C comes in the third text; the report has the first two."""
    model, prompts, costs, path = (str(tmp_path / name) for name in ("tiny", "p.jsonl", "costs.json", "x.json"))
    save_tiny(Path(model))
    save_costs(CostModel([1, 64], [1.0, 1.0]), CostKey.of(Target.load(model)), Path(costs))
    Path(prompts).write_text("".join(json.dumps({"prompt": each}) + "\n" for each in PROMPTS))
    interrupt_after(monkeypatch, texts=2)
    words = [str(ROOT), str(ROOT), "--model", model, "--prompts", prompts, "--costs", costs, "--json", path]
    words += ["--max-new-tokens", str(NEW), "--ignore-eos", "--piece-tokens", "6", "--threads", "1"]
    assert compare_commits.main(words) == 130
    assert capfd.readouterr().out.startswith("stopped after 2 of 3 prompts\nprompts, drafter")
    results = json.loads(Path(path).read_text())["results"]
    found = results["summary"]["p"]
    assert {name: (each["texts"], each["identical"]) for name, each in found.items()} == dict.fromkeys(
        ("none", "prompt-lookup"), (2, 2)
    )
    for run in results["runs"]:
        assert {sum(piece["tokens"] for piece in pieces) for pieces in run["pieces"].values()} == {NEW - 1}
    assert found["none"]["pieces"]["count"] == 2 * 7
    assert found["none"]["pieces"]["ratio_interval"][0] <= found["none"]["pieces"]["ratio"]
    assert found["none"]["mean_generated_length"] == {"old": 1.0, "new": 1.0}


def interrupt_after(patch: pytest.MonkeyPatch, texts: int) -> None:
    """Raise KeyboardInterrupt at the text after ``texts`` texts of both drafters and a warm-up."""
    usual, begun = compare_commits.decode_in_turns, list[int]()

    def interrupted(*args: Any) -> Any:
        begun.append(1)
        if len(begun) > 2 * (texts + 1):
            raise KeyboardInterrupt
        return usual(*args)

    patch.setattr(compare_commits, "decode_in_turns", interrupted)


def test_a_checkout_without_a_compiled_core_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_tiny(tmp_path / "tiny")
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "x"}\n')
    words = ["--model", str(model), "--prompts", str(prompts)]
    assert compare_commits.main([str(tmp_path), str(ROOT), *words]) == 2
    assert "there is no Suffolk; name the root of a repository" in capsys.readouterr().err
    (tmp_path / "suffolk").mkdir()
    (tmp_path / "suffolk" / "__init__.py").touch()
    assert compare_commits.main([str(tmp_path), str(ROOT), *words]) == 2
    assert "datastore/ has no compiled core; run 'python setup.py build_ext --inplace' there" in capsys.readouterr().err
