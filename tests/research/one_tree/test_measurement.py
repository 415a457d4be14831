"""Tests the hybrid comparison as a command on a tiny model: its files, its totals, and resuming after an interruption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from research.one_tree.__main__ import main
from research.one_tree.compared_drafters import HYBRID
from research.one_tree.options import HybridOptions
from research.one_tree.run_log import RunLog
from research.one_tree.summary import MEAN
from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.datastore.errors import Corruption, InvalidArgument
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, costs_path, save_costs
from suffolk.serving.decoding.engine.model.int8_linear import compress
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.measurements import read_report
from tests.support.prompt_sets import make_prompt_sets

pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def _known_costs(folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pass costs are not measured, so the test does not depend on the machine's cost cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    drafting = Target.load(str(folder / "small"))
    compress(drafting.model)
    for target in (Target.load(str(folder / "model")), Target.load(str(folder / "small")), drafting):
        key = CostKey.of(target)
        save_costs(CostModel([1, 64], [1.0, 2.0]), key, costs_path(key))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_prompt_sets(tmp_path_factory.mktemp("hybrid"))


def run(folder: Path, output: Path, *more: str) -> dict[str, Any]:
    prompts = [str(folder / f"{group}.prompts.jsonl") for group in ("a", "b")]
    common = ["--model", str(folder / "model"), "--datastore", str(folder / "store"), "--max-new-tokens", "9"]
    page = output.with_name("hybrid.html")
    words = [*common, "--prompts", *prompts, "--nodes", "6", "--output", str(output), "--report", str(page), *more]
    assert main(words) == 0
    page.replace(output / "hybrid.html")
    return read_report(output / "hybrid.json")


def test_one_run_compares_all_drafters_and_continues(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--draft-model", str(folder / "small"), "--max-nodes", "16")
    (tmp_path / "drop.txt").write_text("a/1\n")
    options = (*options, "--exclude", str(tmp_path / "drop.txt"))
    first = run(folder, tmp_path / "out", *options, "--temperature", "0", "--parts", "nodes")
    assert first["settings"]["drafters"] == [
        "datastore", "prompt-lookup", "draft-model", "sam-decoding: draft-model", "arctic-inference: draft-model", "hybrid",
    ]  # fmt: skip
    assert first["results"]["prompts"] == 5
    assert first["results"]["prompts_excluded"] == ["a/1"]
    before = (tmp_path / "out" / "rows.jsonl").read_text().splitlines()
    found = run(folder, tmp_path / "out", *options, "--temperature", "0", "1")["results"]
    after = (tmp_path / "out" / "rows.jsonl").read_text().splitlines()
    assert after[: len(before)] == before  # nothing is measured twice
    rows = [json.loads(line) for line in after]
    parts = [row["part"] for row in rows if "part" in row]
    assert {part: parts.count(part) for part in set(parts)} == {"nodes": 10, "planned": 10, "service": 10}
    assert found["runs"] == 2
    for part in found["summary"]["nodes"]:
        table = part["table"]
        assert set(table) == {"a", "b", "all", MEAN}
        for each in table["all"].values():
            assert each["tokens"] == 5 * 8
            assert 1.0 <= each["M"] == pytest.approx(each["tokens"] / each["passes"])
            assert each["nodes_per_pass"] <= part["nodes"]
            assert each["draft_failures"] == 0
            # every pass adds one token sampled by the target, unless a drafted token ends the answer
            assert 0 <= sum(each["accepted_by_source"].values()) - (each["tokens"] - each["passes"]) <= 5
    for part in found["summary"]["service"]:
        for each in part["table"]["all"].values():
            assert each["identical"] == each["runs"] == 5
    shown = capsys.readouterr().out
    assert "M at 6 nodes, temperature 1, 5 prompts:" in shown
    assert "hybrid / best single source" in shown


def test_runs_with_other_settings_are_rejected(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(folder, tmp_path, "--parts", "nodes", "--limit", "1")
    common = ["--model", str(folder / "model"), "--prompts", str(folder / "a.prompts.jsonl"), "--output", str(tmp_path)]
    assert main([*common]) == 2
    assert "other settings" in capsys.readouterr().err


def test_exclusions_that_match_no_prompt_are_rejected(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "drop.txt").write_text("a/1\na/7\n")
    common = ["--model", str(folder / "model"), "--prompts", str(folder / "a.prompts.jsonl"), "--output", str(tmp_path)]
    assert main([*common, "--exclude", str(tmp_path / "drop.txt")]) == 2
    assert "1 of 2 names match no prompt, for example 'a/7'" in capsys.readouterr().err
    assert not (tmp_path / "rows.jsonl").exists()


def test_useless_sources_are_compared_with_none(folder: Path, tmp_path: Path) -> None:
    options = ("--useless", "--unrelated", str(folder / "other"), "--parts", "planned", "--limit", "2")
    [part] = run(folder, tmp_path, *options)["results"]["summary"]["planned"]
    assert set(part["loss"]["all"]) == {"hybrid + useless network", "hybrid + unrelated datastore"}
    assert all(0 < left < 2 for left in part["loss"]["all"].values())


def test_hindsight_proposes_nothing_that_is_wrong(folder: Path, tmp_path: Path) -> None:
    options = ("--draft-model", str(folder / "small"), "--recycle", "--parts", "nodes", "--temperature", "0", "1")
    found = run(folder, tmp_path, *options, "--drafters", "hindsight: draft-model")
    for part in found["results"]["summary"]["nodes"]:
        drafted = part["table"]["all"]["hindsight: draft-model"]
        assert drafted["M"] > 1
        assert drafted["verified"] == sum(drafted["accepted_by_source"].values())


def test_counted_time_consists_of_passes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--draft-model", str(folder / "small"), "--recycle", "--parts", "planned", "--counted")
    once, again = (run(folder, tmp_path / name, *options)["results"]["summary"]["planned"] for name in ("a", "b"))
    assert once == again  # equal to the last digit, since no real clock is used
    common = ["--model", str(folder / "model"), "--prompts", str(folder / "a.prompts.jsonl"), "--counted"]
    assert main([*common, "--exit-layers", "1", "--output", str(tmp_path / "c")]) == 2
    assert "the time of early-exit cannot be counted" in capsys.readouterr().err
    assert main([*common, "--parts", "nodes", "--output", str(tmp_path / "c")]) == 2
    assert "--counted needs the part planned" in capsys.readouterr().err


def test_a_log_continues_where_the_run_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    first = RunLog(path, {"a": (1, 2)})
    first.add({"part": "x", "value": 1})
    with path.open("a") as file:
        file.write('{"part": "y", "val')
    second = RunLog(path, {"a": [1, 2]})
    assert (second.rows, second.runs) == ([{"part": "x", "value": 1}], 2)
    assert second.has(part="x")
    assert not second.has(part="x", value=2)
    second.add({"part": "y"})
    assert RunLog(path, {"a": [1, 2]}).rows == [{"part": "x", "value": 1}, {"part": "y"}]
    with pytest.raises(InvalidArgument, match=r"other settings \(a\)"):
        RunLog(path, {"a": [1]})
    path.write_text("oops\n" + path.read_text())
    with pytest.raises(Corruption, match="not JSON"):
        RunLog(path, {"a": [1, 2]})


def options(**changes: object) -> HybridOptions:
    return HybridOptions(DecodingOptions(model="m", prompts=(Path("p"),), drafters=()), Path("out"), **changes)  # type: ignore[arg-type]


def test_options_are_checked() -> None:
    assert options().names == ("prompt-lookup", HYBRID)
    assert options(useless=True).names == (HYBRID, "hybrid + useless network")
    for changes in (
        {"nodes": (0,)},
        {"nodes": (8, 8)},
        {"parts": ("x",)},
        {"temperatures": ()},
        {"unrelated": "u"},
        {"drafters": ("hindsight: eagle",)},
    ):
        with pytest.raises(InvalidArgument):
            options(**changes)


def test_settings_contain_everything_that_rows_depend_on() -> None:
    assert options().settings() == options(nodes=(4,), temperatures=(1.0,), parts=("nodes",)).settings()
    assert options().settings() != options(excluded=frozenset({"a"})).settings()
    assert options().settings() != options(drafters=("prompt-lookup",)).settings()
