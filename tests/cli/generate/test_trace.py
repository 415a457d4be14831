"""Tests ``suffolk generate --trace`` on a tiny model: one page that holds the run, whatever the texts are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, save_costs
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.generate_command import PROMPT, generate, refused


def run_of(file: Path) -> Any:
    """The run that the page holds."""
    page = file.read_text()
    assert page.count("</script>") == 2  # the run and the program
    assert "<!--" not in page
    [run] = re.findall(r'<script type="application/json" id="run">(.*)</script>', page)
    return json.loads(run)


def test_the_page_holds_the_answer_with_and_without_drafts(
    model: str, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", model, "--datastore", store, "--set", "colour=never", PROMPT]
    assert generate(*words) == 0
    text = capsys.readouterr().out.removesuffix("\n")
    assert generate("--trace", str(tmp_path / "run.html"), "--compare-plain", *words) == 0
    run = run_of(tmp_path / "run.html")
    assert (run["prompt"], run["settings"]["most tokens"]) == (PROMPT, 24)
    drafted, plain = run["answers"]
    assert (drafted["drafter"], plain["drafter"]) == ("hybrid", "none")
    for answer in (drafted, plain):
        assert "".join(piece["text"] for step in answer["steps"] for piece in step["pieces"]) == text
    assert any(step["nodes"] for step in drafted["steps"])
    assert not any(step["nodes"] for step in plain["steps"])


def test_accepted_tokens_have_their_passages(model: str, store: str, tmp_path: Path) -> None:
    costs = tmp_path / "costs.json"
    save_costs(CostModel([1, 64], [1.0, 1.0]), CostKey.of(Target.load(model)), costs)  # so that drafts are verified
    words = ["--model", model, "--datastore", store, "--drafter", "datastore", "--temperature", "1"]
    words += [word for each in ("verification=typical", "epsilon=1e-9", f"costs={costs}") for word in ("--set", each)]
    assert generate("--trace", str(tmp_path / "run.html"), *words, PROMPT) == 0
    [answer] = run_of(tmp_path / "run.html")["answers"]
    accepted = {
        f"{at}.{index}": node
        for at, step in enumerate(answer["steps"])
        for index, node in enumerate(step["nodes"])
        if node["accepted"] and "datastore" in node["sources"]
    }
    assert accepted
    assert answer["passages"].keys() == accepted.keys()
    for found in answer["passages"].values():
        [passages] = found["datastores"]
        assert (passages["datastore"], passages["count"] > 0, len(passages["passages"])) == ("bytes", True, 2)


def test_markup_in_the_prompt_does_not_end_the_page(model: str, store: str, tmp_path: Path) -> None:
    prompt = "<!-- </script><script>alert(1)</script> \u2028"
    assert generate("--trace", str(tmp_path / "run.html"), "--model", model, "--datastore", store, prompt) == 0
    assert run_of(tmp_path / "run.html")["prompt"] == prompt


def test_a_page_that_cannot_be_written_is_refused_first(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "none" / "run.html")
    assert "there is no such folder" in refused(capsys, "--model", model, "--trace", file, PROMPT)
    refusal = refused(capsys, "--worker", "grpc://127.0.0.1:1", "--trace", str(tmp_path / "run.html"), PROMPT)
    assert "--trace cannot be given with --worker" in refusal
