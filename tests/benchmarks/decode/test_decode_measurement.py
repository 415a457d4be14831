"""``suffolk bench decode`` on a tiny model writes a correct report."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from suffolk.serving.decoding.replay.read import read_recordings
from tests.support.building import make_texts
from tests.support.forked import suffolk
from tests.support.measurements import bench, read_report, result_files

pytest.importorskip("matplotlib")


def test_decode_compares_every_drafter_with_plain_decoding(folder: Path, model: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    text = make_texts(1)[0]
    row = {"id": "one", "set": "code", "messages": [{"role": "user", "content": text[:80]}], "prefill": "def value"}
    (prompts / "code.jsonl").write_text(json.dumps(row) + "\n")
    (prompts / "free.jsonl").write_text(json.dumps({"prompt": text[:120]}) + "\n" + json.dumps({"prompt": "a" * 1000}))
    path = tmp_path / "decode.json"
    options = ["--max-new-tokens", "24", "--ignore-eos", "--control", "--rounds", "2", "--threads", "1"]
    options += ["--assistant", str(model), "--record", str(tmp_path / "texts.jsonl"), "--exit-layers", "1"]
    stores = ["--datastore", folder / "store"] * 2  # both are listed: the last one used to replace the first
    command = ["decode", "--model", model, *stores, "--prompts", prompts, *options]
    shown = bench(*command, *result_files(path))
    results = read_report(path)["results"]
    assert read_report(path)["settings"]["datastores"] == [str(folder / "store")] * 2
    rivals = {"transformers", "transformers prompt-lookup", "transformers assisted", "transformers suffolk"}
    drafters = {"prompt-lookup", "datastore", "early-exit", "hybrid"}
    ways = {"none", "none, again"} | drafters | rivals
    assert set(results["summary"]) == {"code, chat", "code, prefill", "free", "all"}
    for found in results["summary"].values():
        assert set(found) == ways
        for each in found.values():
            assert each["identical"] == each["runs"] > 0
            assert each["mean_generated_length"] >= 1
            assert each["tokens_per_second_median"] > 0
    every = results["summary"]["all"]
    assert {name: each["runs"] for name, each in every.items()} == dict.fromkeys(ways, 6)
    assert {each["tokens"] for each in every.values()} == {6 * 24}
    assert [(each["group"], each["prompt"]) for each in results["prompts_skipped"]] == [("free", "free.jsonl:2")]
    assert len(results["runs"]) == 6 * len(ways)
    require_pieces(results, {"none", "none, again"} | drafters)
    assert set(results["costs"]["slowdown"]) == {"none", "none, again"} | drafters
    recorded = Counter((each.drafter, each.group) for each in read_recordings([tmp_path / "texts.jsonl"]))
    groups = ("code, chat", "code, prefill", "free")  # of the first round
    assert recorded == {(name, group): 1 for name in ("none", *drafters) for group in groups}
    assert "exceed the model's context: 1" in shown


def test_recorded_answers_are_the_ceiling(model: Path, tmp_path: Path) -> None:
    (tmp_path / "free.jsonl").write_text(json.dumps({"prompt": make_texts(1)[0][:120]}) + "\n")
    path = tmp_path / "decode.json"
    options = ["--drafters", "useless,recorded", "--max-new-tokens", "64", "--ignore-eos", "--threads", "1"]
    shown = bench("decode", "--model", model, "--prompts", tmp_path / "free.jsonl", *options, *result_files(path))
    found = read_report(path)["results"]["summary"]["free"]
    assert found["recorded"]["identical"] == found["useless"]["identical"] == 1
    accepted = sum(found["recorded"]["accepted_by_source"].values())
    assert accepted == found["recorded"]["nodes_verified_per_step"] * found["recorded"]["runs"] * _steps(path) > 0
    assert found["useless"]["accepted_by_source"] == {}
    share = found["recorded"]["share_of_ceiling"]
    assert share in (None, 1.0)
    assert ("recorded 100%" in shown) == (share == 1.0)


def test_only_decode_knows_recorded_answers(model: Path, tmp_path: Path) -> None:
    (tmp_path / "free.jsonl").write_text(json.dumps({"prompt": "def"}) + "\n")
    command = ("bench", "batch", "--model", model, "--prompts", tmp_path / "free.jsonl", "--drafters", "recorded")
    ended = suffolk(*map(str, command))
    assert ended.returncode == 2
    assert "drafter is 'recorded'; it must be one of" in ended.stderr


def _steps(path: Path) -> int:
    [run] = [run for run in read_report(path)["results"]["runs"] if run["drafter"] == "recorded"]
    return int(run["steps"])


def require_pieces(results: dict[str, Any], engine: set[str]) -> None:
    """Check that pieces hold all tokens but the first, and that only methods of the ``engine`` have several."""
    for run in results["runs"]:
        assert sum(piece["tokens"] for piece in run["pieces"]) == run["tokens"] - run.get("first_tokens", 1)
        assert run["drafter"] in engine or len(run["pieces"]) == 1
        assert not run["drafter"].startswith("none") or len(run["pieces"]) > 1
    for name, each in results["summary"]["all"].items():
        ratios = each["pieces"]
        assert (ratios is None) == (name == "none")
        if ratios is not None:
            assert ratios["count"] >= 6
            assert min(ratios[field] for field in ("ratio", "speed_up", "process_speed_up")) > 0
    again = results["summary"]["all"]["none, again"]["pieces"]
    assert again["count"] == sum(len(run["pieces"]) for run in results["runs"] if run["drafter"] == "none, again")


def test_decode_reports_missing_parts_before_loading(model: Path, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "x"}\n')
    done = suffolk("bench", "decode", "--model", model, "--prompts", tmp_path / "p.jsonl", "--drafters", "datastore")
    assert done.returncode == 2
    assert "needs a datastore" in done.stderr


def test_a_report_goes_into_a_folder_that_exists(model: Path, tmp_path: Path) -> None:
    for option in ("--json", "--plot"):
        file = tmp_path / "new" / "x.json"
        done = suffolk("bench", "decode", "--model", model, "--prompts", tmp_path, option, file)
        assert done.returncode == 2
        assert f"{option} {file}: there is no such folder" in done.stderr
    assert not (tmp_path / "new").exists()
